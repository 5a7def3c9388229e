/** Whether the page is loading or painting: tests wait for it to be idle instead of sleeping. */

let running = 0;
let settle: number | null = null;

function show(): void {
  document.documentElement.dataset.idle = running === 0 && settle === null ? "true" : "false";
}

/** Idle again only after what was changed has been painted: two timer turns past the last piece of work. */
function settleSoon(): void {
  if (settle !== null) window.clearTimeout(settle);
  settle = window.setTimeout(() => {
    settle = window.setTimeout(() => {
      settle = null;
      show();
    }, 50);
  }, 0);
}

export function touch(): void {
  settleSoon();
  show();
}

/** Marks the page as busy until the promise is settled. */
export async function busy<T>(work: Promise<T>): Promise<T> {
  running += 1;
  show();
  try {
    return await work;
  } finally {
    running -= 1;
    touch();
  }
}

/** Does the work after a delay, for which the page counts as busy; returns what calls it off. */
export function later(milliseconds: number, work: () => void): () => void {
  let timer: number | null = window.setTimeout(() => {
    work();
    end();
  }, milliseconds);
  const end = (): void => {
    if (timer === null) return;
    window.clearTimeout(timer);
    timer = null;
    running -= 1;
    touch();
  };
  running += 1;
  show();
  return end;
}

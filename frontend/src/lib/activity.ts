/** Whether the page is loading or painting: tests wait for it to be idle instead of sleeping. */

let running = 0;
let settle: number | null = null;

function show(): void {
  document.documentElement.dataset.idle = running === 0 && settle === null ? "true" : "false";
}

/** Marks the page as idle once changes have been painted: two timer turns after the last work. */
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

/**
 * Runs `work` after a delay, during which the page counts as busy; returns a function that cancels
 * it.
 */
export function later(milliseconds: number, work: () => void): () => void {
  let timer: number | null = window.setTimeout(() => {
    work();
    end();
  }, milliseconds);
  const end = () => {
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

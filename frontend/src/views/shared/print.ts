/**
 * Prints every view of the shown run: shows one after the other, copies each with what its canvases
 * show, and prints the copies.
 */

import { signal } from "@preact/signals";

import type { Store } from "../../state/store";
import { VIEWS, offeredViews, supports, type ViewName } from "../../state/views";
import { dark } from "../../theme/palette";

/**
 * Whether long tables have all their rows in the document, up to `MOST_PRINTED`, instead of those
 * in sight.
 */
export const printing = signal(false);
export const MOST_PRINTED = 100;

/** What has not arrived by then is printed as it is. */
const PATIENCE_MS = 60_000;
/** A view that got another size is drawn again a frame later. */
const QUIET_FRAMES = 4;

async function settled(root: HTMLElement): Promise<void> {
  const start = performance.now();
  for (let quiet = 0; quiet < QUIET_FRAMES && performance.now() - start < PATIENCE_MS; quiet += 1) {
    await new Promise(requestAnimationFrame);
    if (root.dataset.idle !== "true") quiet = 0;
  }
}

/**
 * Makes the copy of an element look on paper as the element does on the screen, whatever the
 * paper's size: nothing scrolls there.
 */
function settle(one: HTMLElement, copy: HTMLElement): void {
  if (one.matches("select, input, thead button")) {
    // A browser does not repeat buttons with the head of a table.
    const { selectedOptions, value, placeholder } = one as HTMLSelectElement & HTMLInputElement;
    copy.replaceWith((selectedOptions?.[0] ?? one).textContent || value || placeholder);
  }
  if (one instanceof HTMLCanvasElement && one.width * one.height > 0)
    (copy as HTMLCanvasElement).getContext("2d")?.drawImage(one, 0, 0);
  const { display, gridTemplateColumns, flexDirection, overflowY } = getComputedStyle(one);
  Object.assign(copy.style, { display, gridTemplateColumns, flexDirection });
  if (one.querySelector("canvas, svg[role]") && !one.querySelector("table, p, ul, h2"))
    copy.style.height = `${one.offsetHeight}px`;
  if (overflowY !== "auto") return;
  copy.classList.add("unrolled");
  copy.style.zoom = `${Math.min(one.clientWidth / one.scrollWidth, 1)}`;
}

function pageOf(main: HTMLElement, store: Store, view: ViewName): HTMLElement {
  const [page, copy] = [document.createElement("section"), main.cloneNode(true) as HTMLElement];
  const [ones, copies] = [main, copy].map((host) => [
    ...host.querySelectorAll<HTMLElement>(":not(svg *, svg)"),
  ]);
  ones?.forEach((one, index) => settle(one, copies?.[index] as HTMLElement));
  const step = supports(view, "step") && `step ${store.shownStep.peek()?.step ?? "unknown"}`;
  const of = [
    store.primary.peek()?.run,
    store.device.peek(),
    supports(view, "phase") && store.phase.peek(),
    step,
  ];
  of.push(copy.querySelector(".step-note")?.textContent);
  const [title, about] = [document.createElement("h1"), document.createElement("p")];
  title.append(VIEWS[view].title ?? view);
  about.append(of.filter(Boolean).join(" · "));
  page.append(title, about, copy);
  return page;
}

let end = (): void => {};

/** The copies are in the document until they are printed. Nothing happens while others are made. */
export async function printViews(store: Store): Promise<void> {
  const [run, before, root] = [
    store.primary.peek(),
    store.choices.peek(),
    document.documentElement,
  ];
  const { scheme, printing: busy } = root.dataset;
  if (!run || busy) return;
  const pages = document.createElement("div");
  const show = (colours: string | undefined) => {
    dark.value = (root.dataset.scheme = colours) === "dark";
  };
  pages.className = "pages";
  pages.textContent = "Preparing to print …";
  document.body.append(pages);
  root.dataset.printing = "views";
  printing.value = true;
  show("light");
  try {
    for (const view of offeredViews(before.view, run, store.selected.peek())) {
      store.replace({ view });
      await settled(root);
      const main = document.querySelector("main");
      if (main && !main.querySelector(".nothing")) pages.append(pageOf(main, store, view));
    }
  } finally {
    pages.firstChild?.remove();
    store.replace(before);
    delete root.dataset.printing;
  }
  end = () => {
    end = () => {};
    pages.remove();
    show(scheme);
  };
  window.print();
}

/** Long tables are whole in what the browser prints on its own, too. */
export function followPrinting(): void {
  window.onbeforeprint = () => void (printing.value = true);
  window.onafterprint = () => {
    printing.value = false;
    end();
  };
}

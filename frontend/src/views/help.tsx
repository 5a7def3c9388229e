/** Keys that work everywhere, and the list of all of them. */

import { useEffect, useRef } from "preact/hooks";

import type { Store } from "../state/store";
import { tabsOf } from "./toolbar";

const KEYS: readonly (readonly [string, string])[] = [
  ["?", "this list"],
  ["/", "search: layers in their view, else runs"],
  ["1 … 8", "the views, in the order of their tabs"],
  ["Esc", "clear: the selected layer, then the selected category, the chosen moment inside a step, the pinned step, the zoom"],
  ["Tab", "from one part of the page to the next"],
  ["← →", "in a chart: from step to step; inside a step: from moment to moment; in a map: from chunk to chunk; with Shift ten at once"],
  ["Home, End", "the first and the last of them"],
  [
    "Enter",
    "in a chart: pin the step; inside a step: choose the moment; in a map: zoom to the chunk; in a table of categories: select one, in every view",
  ],
  ["↑ ↓", "in a table of figures: from one to the next, each explained"],
  ["W S or + −", "zoom in and out around the cursor"],
  ["A D", "move to the left and to the right"],
  ["0", "show all again"],
];

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches("input:not([type='checkbox']), select, textarea");

function focusSearch(): void {
  const search =
    document.querySelector<HTMLInputElement>("main input[type='search']") ??
    document.querySelector<HTMLInputElement>(".runs input[type='search']");
  search?.focus();
  search?.select();
}

/** Escape clears from anywhere; digits choose a view, a slash searches, a question mark helps. */
export function useKeys(store: Store, help: () => void): void {
  useEffect(() => {
    const clear = (): void => {
      const { step, layer, view, category, moment, span } = store.choices.peek();
      store.cursor.value = null;
      store.momentCursor.value = null;
      if (view === "layer") store.choose({ view: "layers" });
      else if (layer !== null) store.choose({ layer: null });
      else if (category !== null) store.choose({ category: null });
      else if (view === "step" && (moment !== null || span !== null)) store.choose(moment !== null ? { moment: null } : { span: null });
      else store.choose(step !== null ? { step: null } : { zoom: null, mapZooms: [] });
    };
    const listener = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) clear();
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const place = /^[1-9]$/.test(event.key) ? tabsOf(store)[Number(event.key) - 1] : undefined;
      if (place) store.choose({ view: place });
      else if (event.key === "/") focusSearch();
      else if (event.key === "?") help();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", listener);
    return () => document.removeEventListener("keydown", listener);
  }, [store]);
}

/** The dialog with the keys, and the button that opens it; `open` is filled with what opens it. */
export function Help({ open }: { open: { current: () => void } }) {
  const dialog = useRef<HTMLDialogElement>(null);
  open.current = () => dialog.current?.showModal();
  return (
    <>
      <button type="button" class="help-button" aria-label="Keys" title="Keys (?)" onClick={() => open.current()}>
        ?
      </button>
      <dialog ref={dialog} class="help" aria-label="Keys" onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
        <form method="dialog">
          <h2>Keys</h2>
          <dl>
            {KEYS.map(([key, what]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <button type="submit" class="quiet">
            Close
          </button>
        </form>
      </dialog>
    </>
  );
}

/** Keyboard shortcuts of the whole page, and their list. */

import { useEffect, useRef } from "preact/hooks";

import { CLEARED_IN_ORDER, cleared } from "../../state/choices";
import type { Store } from "../../state/store";
import { useStore } from "../shared/context";
import { goToSearch } from "../shared/search";
import { tabsOf } from "./toolbar";

/** Tabs that have a digit. */
const DIGITS = 9;

const keysOf = (tabs: number): readonly (readonly [string, string])[] => [
  ["?", "show this list"],
  ["/", "search the view's list, otherwise the runs"],
  [`1 … ${Math.min(tabs, DIGITS)}`, "open a tab, in tab order"],
  ["Esc", `leave the page of a layer; otherwise clear, in this order: ${CLEARED_IN_ORDER}`],
  ["Tab", "next element; the list of tabs is one, with ← and →"],
  ["← →", "previous or next step in a chart, moment in a step timeline, chunk in a memory map; ten at once with Shift"],
  ["Home, End", "first or last of them"],
  ["Enter", "select the step in a chart, the moment in a step timeline, or a category in a table; zoom to the chunk in a memory map"],
  ["↑ ↓", "previous or next row of a table, with its explanation"],
  ["drag", "zoom to a span of a chart; double-click for all"],
  ["Ctrl or ⌘ with a drag", "select a span of a step timeline; by keyboard, M marks one end and then the other"],
  ["W S or + −", "zoom in or out around the cursor"],
  ["A D", "pan left or right"],
  ["0", "show everything"],
];

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches("input:not([type='checkbox']), select, textarea");

/** Escape clears, digits open a tab, a slash searches, a question mark opens the help. */
export function useKeys(store: Store, help: () => void): void {
  useEffect(() => {
    const clear = (): void => {
      store.cursor.value = null;
      store.momentCursor.value = null;
      store.choose(cleared(store.choices.peek()));
    };
    const listener = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) clear();
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const place = /^[1-9]$/.test(event.key) ? tabsOf(store)[Number(event.key) - 1] : undefined;
      if (place) store.choose({ view: place });
      else if (event.key === "/") goToSearch(store);
      else if (event.key === "?") help();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", listener);
    return () => document.removeEventListener("keydown", listener);
  }, [store]);
}

/** The dialog with the shortcuts, and the button that opens it; sets `open.current` to a function that opens it. */
export function Help({ open }: { open: { current: () => void } }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const keys = keysOf(tabsOf(useStore()).length);
  open.current = () => dialog.current?.showModal();
  return (
    <>
      <button
        type="button"
        class="help-button"
        aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"
        onClick={() => open.current()}
      >
        ?
      </button>
      <dialog
        ref={dialog}
        class="help"
        aria-label="Keyboard shortcuts"
        onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      >
        <form method="dialog">
          <h2>Keyboard shortcuts</h2>
          <dl>
            {keys.map(([key, what]) => (
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

/** The search field of a view, and the keyboard shortcut to it. */

import { useEffect, useRef } from "preact/hooks";

import type { Store } from "../../state/store";
import { supports } from "../../state/views";
import { useStore } from "./context";

/** A shortcut pressed while its view was loading: the view, and the focused element. */
let pending: { view: string; from: Element | null } | null = null;

const ownSearch = (): HTMLInputElement | null => document.querySelector("main input[type='search']");

function enter(search: HTMLInputElement | null): void {
  search?.focus();
  search?.select();
}

/** Focuses the search field of the view, otherwise that of the runs; in a view that is loading, once the field exists. */
export function goToSearch(store: Store): void {
  const { view } = store.choices.peek();
  const own = ownSearch();
  const loading = own === null && supports(view, "search") && document.querySelector("main .skeleton") !== null;
  pending = loading ? { view, from: document.activeElement } : null;
  if (!loading) enter(own ?? document.querySelector<HTMLInputElement>(".runs input[type='search']"));
}

/** A view's own search. */
export function Search({ label, placeholder }: { label: string; placeholder: string }) {
  const store = useStore();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const { view } = store.choices.peek();
    // Leave the focus alone if it has moved meanwhile.
    if (pending?.view === view && document.activeElement === pending.from) enter(input.current);
    pending = null;
  }, []);
  return (
    <input
      ref={input}
      type="search"
      class="filter"
      placeholder={placeholder}
      aria-label={label}
      value={store.choices.value.search}
      onInput={(event) => store.choose({ search: event.currentTarget.value })}
    />
  );
}

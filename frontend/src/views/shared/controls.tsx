/** Search fields, rows of buttons and legends. */

import type { ButtonHTMLAttributes } from "preact";
import { useEffect, useRef } from "preact/hooks";

import type { Overview } from "../../model/overview";
import type { Choices } from "../../state/address";
import type { Store } from "../../state/store";
import { supports } from "../../state/views";
import { useStore } from "./context";

/** A shortcut pressed while its view was loading: the view, and the focused element. */
let pending: { view: string; from: Element | null } | null = null;

const ownSearch = (): HTMLInputElement | null =>
  document.querySelector("main input[type='search']");

function enter(search: HTMLInputElement | null): void {
  search?.focus();
  search?.select();
}

/**
 * Focuses the search field of the view, otherwise that of the runs; in a view that is loading, once
 * the field exists.
 */
export function goToSearch(store: Store): void {
  const { view } = store.choices.peek();
  const own = ownSearch();
  const loading =
    own === null && supports(view, "search") && document.querySelector("main .skeleton") !== null;
  pending = loading ? { view, from: document.activeElement } : null;
  if (!loading)
    enter(own ?? document.querySelector<HTMLInputElement>(".runs input[type='search']"));
}

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

type ChooseProps = ButtonHTMLAttributes<HTMLButtonElement> & { these: Partial<Choices> };

/** A button that changes the choices. */
export function Choose({ these, ...button }: ChooseProps) {
  const store = useStore();
  return <button type="button" {...button} onClick={() => store.choose(these)} />;
}

interface SegmentsProps<T extends string> {
  label: string;
  named?: boolean;
  /** Whether only its place is there, so that nothing moves from view to view. */
  reserved?: boolean;
  options: readonly T[];
  chosen: T;
  choose: (option: T) => void;
}

export function Segments<T extends string>({
  label,
  named = true,
  reserved = false,
  options,
  chosen,
  choose,
}: SegmentsProps<T>) {
  return (
    <div class={reserved ? "segments reserved" : "segments"} role="group" aria-label={label}>
      {named && (
        <span class="segments-label" aria-hidden="true">
          {label}
        </span>
      )}
      {options.map((option) => (
        <button
          key={option}
          type="button"
          aria-pressed={option === chosen}
          onClick={() => choose(option)}
        >
          {option}
        </button>
      ))}
    </div>
  );
}

type Worded = {
  [Name in keyof Choices]: Choices[Name] extends string ? Name : never;
}[keyof Choices];

export function ChoiceSegments<Name extends Worded>({
  of,
  ...others
}: Pick<SegmentsProps<Choices[Name]>, "label" | "named" | "reserved" | "options"> & { of: Name }) {
  const store = useStore();
  return (
    <Segments
      {...others}
      chosen={store.choices.value[of]}
      choose={(option) => store.choose({ [of]: option })}
    />
  );
}

export const LegendItem = ({
  kind,
  colour,
  label,
}: {
  kind: string;
  colour?: string;
  label: string;
}) => (
  <span class="legend-item">
    <i class={`key ${kind}`} style={colour ? { "--key": colour } : {}} aria-hidden="true" />
    {label}
  </span>
);

export function StackLegend({
  overview,
  validation = true,
  ended = false,
}: {
  overview: Overview;
  validation?: boolean;
  ended?: boolean;
}) {
  const { snapshots, validations } = overview;
  return (
    <p class="legend">
      <LegendItem kind="line" label="peak" />
      {ended && <LegendItem kind="ended" label="step end" />}
      {snapshots.length > 0 && <LegendItem kind="full" label="measured" />}
      <LegendItem kind="light" label="inferred" />
      {validation && validations.length > 0 && <LegendItem kind="diamond" label="validation" />}
    </p>
  );
}

export const zoomKeys = (
  zoom: (factor: number) => void,
  pan: (share: number) => void,
  reset: () => void,
): Record<string, () => void> => ({
  ...Object.fromEntries(["+", "=", "w"].map((key) => [key, () => zoom(0.5)])),
  ...Object.fromEntries(["-", "s"].map((key) => [key, () => zoom(2)])),
  a: () => pan(-0.25),
  d: () => pan(0.25),
  "0": reset,
});

/** Does what a key is for, unless it is pressed with Ctrl, Alt or the like. */
export function actOnKey(event: KeyboardEvent, actions: Record<string, () => void>): void {
  const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/** The user's choices, kept equal to the page's address; the browser's Back button undoes one change at a time. */

import { effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";

import { DEFAULTS, changedTo, decode, encode, type Choices } from "./address";
import { readAddress, writeAddress, writeNextAddress } from "./host";
import { VIEWS, supports } from "./views";

/** Choices that change with each key or turn of the wheel, or follow from others: Back does not stop at them. */
const PASSING: ReadonlySet<keyof Choices> = new Set(["search", "moment", "tensor", "span", "mapZooms", "fitMib"]);

/** Of the runs' filter, its first character and its removal are changes: Back undoes it as a whole. */
const isChange = (before: Choices, now: Choices): boolean =>
  (Object.keys(now) as (keyof Choices)[]).some(
    (name) => !PASSING.has(name) && now[name] !== before[name] && (name !== "filter" || !now.filter || !before.filter),
  );

export function createChoices() {
  const choices = signal<Choices>(decode(readAddress()));
  const choose = (changed: Partial<Choices>): void => {
    choices.value = changedTo(choices.peek(), changed);
  };
  /** Whether the change takes the place of the one before it, and whether there is a stop to use instead of a new one. */
  const replaces = { current: false, spare: false };
  const replaceAll = (now: Choices): void => {
    replaces.current = true;
    choices.value = now;
    replaces.current = false;
  };
  return {
    choices,
    choose,
    replaces,
    /** The same, without a stop for Back. */
    replace: (changed: Partial<Choices>): void => replaceAll(changedTo(choices.peek(), changed)),
    /** The same; gives a function that restores the choices before. */
    chooseWithUndo: (changed: Partial<Choices>): (() => void) => {
      const before = choices.peek();
      choose(changed);
      const stopped = isChange(before, choices.peek());
      return () => {
        replaceAll(before);
        // The stop that the change made is left for the next one.
        if (stopped) replaces.spare = true;
      };
    },
  };
}

/** The address of the default choices, once there is another one to go back to: an empty one is TensorBoard's on another tab. */
const FIRST = `view=${DEFAULTS.view}`;

/** `impliedStep` is the step to write where none is chosen. */
export function keepAddress(
  { choices, replaces }: { choices: Signal<Choices>; replaces: { current: boolean; spare: boolean } },
  impliedStep: ReadonlySignal<number | null>,
) {
  let empty = "";
  const textOf = (now: Choices, step: number | null): string => encode({ ...now, step: now.step ?? step }) || empty;
  let before = choices.peek();
  let written = encode(before);
  effect(() => {
    const now = choices.value;
    const next = !replaces.current && isChange(before, now);
    if (next) empty = FIRST;
    const text = textOf(now, impliedStep.value);
    if (text === written) return;
    if (next && !replaces.spare) writeNextAddress(written || FIRST, text);
    else writeAddress(text);
    if (next) replaces.spare = false;
    written = text;
    before = now;
  });
  return {
    follow: (): void => {
      const text = readAddress();
      // An address without our part means that TensorBoard went to another tab: keep the choices.
      if (text === written || text === "") return;
      empty = FIRST;
      replaces.spare = false;
      before = decode(text);
      written = encode(before) || FIRST;
      choices.value = before;
    },
  };
}

interface Clearing {
  name: string;
  /** Null if there is nothing to clear. */
  clear(choices: Choices): Partial<Choices> | null;
}

const CLEARINGS: readonly Clearing[] = [
  { name: "selected layer", clear: ({ layer }) => (layer !== null ? { layer: null } : null) },
  { name: "selected category", clear: ({ category }) => (category !== null ? { category: null } : null) },
  { name: "selected tensor", clear: ({ view, tensor }) => (supports(view, "moment") && tensor !== null ? { tensor: null } : null) },
  { name: "selected moment", clear: ({ view, moment }) => (supports(view, "moment") && moment !== null ? { moment: null } : null) },
  { name: "selected span", clear: ({ view, selection }) => (supports(view, "moment") && selection !== null ? { selection: null } : null) },
  { name: "zoom of the timeline", clear: ({ view, span }) => (supports(view, "moment") && span !== null ? { span: null } : null) },
  { name: "selected step", clear: ({ step }) => (step !== null ? { step: null } : null) },
  { name: "zoom", clear: ({ zoom, mapZooms }) => (zoom !== null || mapZooms.length > 0 ? { zoom: null, mapZooms: [] } : null) },
];

/** "selected layer, selected category, …", in the order in which Escape clears them. */
export const CLEARED_IN_ORDER = CLEARINGS.map(({ name }) => name).join(", ");

/** The choices that one press of Escape changes; empty if nothing is left to clear. */
export function cleared(choices: Choices): Partial<Choices> {
  const { parent } = VIEWS[choices.view];
  if (parent !== undefined) return { view: parent };
  for (const { clear } of CLEARINGS) {
    const changed = clear(choices);
    if (changed) return changed;
  }
  return {};
}

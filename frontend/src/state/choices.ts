/** The user's choices, kept equal to the page's address; a change of the view can be undone by the browser's Back button. */

import { effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";

import { DEFAULTS, changedTo, decode, encode, type Choices } from "./address";
import { readAddress, writeAddress, writeNextAddress } from "./host";

/** The choices, at first those of the address. */
export function createChoices() {
  const choices = signal<Choices>(decode(readAddress()));
  const choose = (changed: Partial<Choices>): void => {
    choices.value = changedTo(choices.peek(), changed);
  };
  return {
    choices,
    choose,
    /** The same; gives a function that restores the choices before. */
    chooseWithUndo: (changed: Partial<Choices>): (() => void) => {
      const before = choices.peek();
      choose(changed);
      return () => (choices.value = before);
    },
  };
}

/** The address of the default choices, once there is another one to go back to: an empty one is TensorBoard's on another tab. */
const FIRST = `view=${DEFAULTS.view}`;

/** `impliedStep` is the step to write where none is chosen. */
export function keepAddress(choices: Signal<Choices>, impliedStep: ReadonlySignal<number | null>) {
  let empty = "";
  const textOf = (now: Choices, step: number | null): string => encode({ ...now, step: now.step ?? step }) || empty;
  let before = choices.peek();
  let written = encode(before);
  effect(() => {
    const now = choices.value;
    const next = now.view !== before.view || now.conditions !== before.conditions || now.budget !== before.budget;
    if (next) empty = FIRST;
    const text = textOf(now, impliedStep.value);
    if (text === written) return;
    if (next) writeNextAddress(written || FIRST, text);
    else writeAddress(text);
    written = text;
    before = now;
  });
  return {
    /** Applies an address that changed from outside. */
    follow: (): void => {
      const text = readAddress();
      // An address without our part means that TensorBoard went to another tab: keep the choices.
      if (text === written || text === "") return;
      empty = FIRST;
      before = decode(text);
      written = encode(before) || FIRST;
      choices.value = before;
    },
  };
}

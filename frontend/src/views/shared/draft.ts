/** A text field with a text of its own until it applies: after a pause, with Enter, or when the field is left. */

import { useEffect, useRef, useState } from "preact/hooks";

import { later } from "../../lib/activity";

const PAUSE_MS = 700;

type FieldEvent = { currentTarget: { value: string } };

/** Attributes of the field. */
export function useDraft(applied: string, apply: (value: string) => void) {
  const [draft, setDraft] = useState(applied);
  const cancel = useRef(() => {});
  useEffect(() => setDraft(applied), [applied]);
  useEffect(() => () => cancel.current(), []);
  const now = (value: string): void => {
    cancel.current();
    apply(value);
  };
  return {
    value: draft,
    autocomplete: "off",
    spellcheck: false,
    onInput: ({ currentTarget: { value } }: FieldEvent): void => {
      setDraft(value);
      cancel.current();
      cancel.current = later(PAUSE_MS, () => apply(value));
    },
    onBlur: ({ currentTarget: { value } }: FieldEvent): void => now(value),
    onKeyDown: (event: KeyboardEvent & FieldEvent): void => {
      if (event.key === "Enter") now(event.currentTarget.value);
    },
  };
}

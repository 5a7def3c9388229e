/** The store of the page, and hooks that several views use. */

import { createContext, h, type ComponentChildren } from "preact";
import { useContext, useMemo, useState, useEffect, useRef, useLayoutEffect } from "preact/hooks";

import { later } from "../../lib/activity";
import type { Choices } from "../../state/address";
import { NOTHING, type Loaded, type Resource } from "../../state/resource";
import type { Store } from "../../state/store";
import { supports } from "../../state/views";
import type { AnswerEvidence, Category, RunInfo } from "../../schema";

export const StoreContext = createContext<Store | null>(null);

export function useStore(): Store {
  const store = useContext(StoreContext);
  if (!store) throw new Error("No store around this view.");
  return store;
}

export const useChoices = (): Choices => useStore().choices.value;

export interface Focus {
  hovered: string | null;
  category: Category | null;
}

/**
 * Whether a part is drawn paler because another one is highlighted; `keys` are all keys of the
 * part.
 */
export const isMuted = (
  { hovered, category }: Focus,
  keys: readonly string[],
  own: Category | null,
): boolean => (hovered !== null ? !keys.includes(hovered) : category !== null && category !== own);

const NO_FOCUS: Focus = { hovered: null, category: null };
const FocusContext = createContext<readonly [Focus, ((key: string | null) => void) | null]>([
  NO_FOCUS,
  null,
]);

/** What is highlighted in a view: the part under the pointer, and the selected category. */
export function FocusScope({ children }: { children: ComponentChildren }) {
  const { category } = useStore().choices.value;
  const [hovered, hover] = useState<string | null>(null);
  const value = useMemo(() => [{ hovered, category }, hover] as const, [hovered, category]);
  return h(FocusContext.Provider, { value }, children);
}

export const useFocus = (): Focus => useContext(FocusContext)[0];

/** How the row of a part is highlighted; a click chooses the category. */
export function useCategoryRow() {
  const store = useStore();
  const [{ hovered }, hover] = useContext(FocusContext);
  const { category: selected } = useChoices();
  return (key: string, category: Category | null) => ({
    chosen: category !== null && selected === category,
    focused: hovered === key,
    ...(category !== null && {
      onChoose: () => store.choose({ category: selected === category ? null : category }),
    }),
    ...(hover && { onFocus: (focused: boolean): void => hover(focused ? key : null) }),
  });
}

const PAUSE_MS = 700;

type FieldEvent = { currentTarget: { value: string } };

export function useDraft(applied: string, apply: (value: string) => void) {
  const [draft, setDraft] = useState(applied);
  const cancel = useRef(() => {});
  useEffect(() => setDraft(applied), [applied]);
  useEffect(() => () => cancel.current(), []);
  const now = (value: string) => {
    cancel.current();
    apply(value);
  };
  return {
    value: draft,
    autocomplete: "off",
    spellcheck: false,
    onInput: ({ currentTarget: { value } }: FieldEvent) => {
      setDraft(value);
      cancel.current();
      cancel.current = later(PAUSE_MS, () => apply(value));
    },
    onBlur: ({ currentTarget: { value } }: FieldEvent): void => now(value),
    onKeyDown: (event: KeyboardEvent & FieldEvent) => {
      if (event.key === "Enter") now(event.currentTarget.value);
    },
  };
}

/** The answer to a question, fetched while the view shows it; nothing for no question. */
export function useFetched<Args extends unknown[], T>(
  resource: Resource<Args, T>,
  question: Args | null,
): Loaded<T> {
  useLayoutEffect(() => {
    if (question) resource.want(...question);
  }, [resource, question && resource.identity(...question)]);
  return question ? resource.read(...question) : NOTHING;
}

/**
 * Choices without a part that the evidence does not name stay; the whole range is shown unless it
 * names steps.
 */
export function choicesFor(
  { view, step, phase, other_step, category, layer, zoom, oom }: AnswerEvidence,
  run: RunInfo,
): Partial<Choices> {
  if (supports(view, "failure")) return { view, oom: oom ?? 0, mapZooms: [] };
  const [first, last] = zoom ?? [];
  return {
    view,
    zoom: first !== undefined && last !== undefined ? [first, last] : null,
    // The answers are about the run, not about one attempt.
    session: null,
    ...(step !== null && { step }),
    ...(phase !== null && run.phases.includes(phase) && { phase }),
    ...(category !== null && { category }),
    ...(layer !== null && { layer }),
    ...(other_step !== null && { other: run.run, otherStep: other_step }),
  };
}

export function useSize() {
  const host = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (!host.current) return undefined;
    // Before the first frame is painted: nothing is drawn in another size and then moved.
    setSize({ width: host.current.clientWidth, height: host.current.clientHeight });
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
    });
    observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  return { host, ...size };
}

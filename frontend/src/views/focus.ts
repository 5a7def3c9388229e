/** What is looked at: the part under the pointer, else the category that was selected, here or in another view. */

import { useMemo, useState } from "preact/hooks";

import type { Category } from "../model/categories";
import { useStore } from "./context";

export interface Focus {
  /** Key of the part under the pointer or the keyboard. */
  hovered: string | null;
  category: Category | null;
}

export const NO_FOCUS: Focus = { hovered: null, category: null };

/** Whether a part is drawn paler because another one is looked at; `keys` are all that mean it. */
export const isMuted = ({ hovered, category }: Focus, keys: readonly string[], own: Category | null): boolean =>
  hovered !== null ? !keys.includes(hovered) : category !== null && category !== own;

export function useFocus() {
  const store = useStore();
  const { category } = store.choices.value;
  const [hovered, hover] = useState<string | null>(null);
  const focus = useMemo((): Focus => ({ hovered, category }), [hovered, category]);
  return { focus, hover };
}

/** What a row of a category does: it is looked at while the pointer or the keyboard is on it, and selected by a click or Enter. */
export function useCategoryRow(hover?: (key: string | null) => void) {
  const store = useStore();
  const { category: selected } = store.choices.value;
  return (key: string, category: Category) => ({
    chosen: selected === category,
    onChoose: (): void => store.choose({ category: selected === category ? null : category }),
    ...(hover && { onFocus: (focused: boolean): void => hover(focused ? key : null) }),
  });
}

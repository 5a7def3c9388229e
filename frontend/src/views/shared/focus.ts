/** The highlighted part: the one under the pointer, otherwise the selected category. */

import { useMemo, useState } from "preact/hooks";

import type { Category } from "../../model/categories";
import { useStore } from "./context";

export interface Focus {
  /** Key of the part under the pointer or the keyboard. */
  hovered: string | null;
  category: Category | null;
}

/** Whether a part is drawn paler because another one is highlighted; `keys` are all keys of the part. */
export const isMuted = ({ hovered, category }: Focus, keys: readonly string[], own: Category | null): boolean =>
  hovered !== null ? !keys.includes(hovered) : category !== null && category !== own;

export function useFocus() {
  const store = useStore();
  const { category } = store.choices.value;
  const [hovered, hover] = useState<string | null>(null);
  const focus = useMemo((): Focus => ({ hovered, category }), [hovered, category]);
  return { focus, hover };
}

/** Handlers of a category's row: hover or focus highlights it, a click or Enter selects it. */
export function useCategoryRow(hover?: (key: string | null) => void) {
  const store = useStore();
  const { category: selected } = store.choices.value;
  return (key: string, category: Category) => ({
    chosen: selected === category,
    onChoose: (): void => store.choose({ category: selected === category ? null : category }),
    ...(hover && { onFocus: (focused: boolean): void => hover(focused ? key : null) }),
  });
}

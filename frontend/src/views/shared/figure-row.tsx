/** A row of a breakdown beside a picture, which is folded if its figure is too small to read at every step. */

import { Figure, type FigureProps } from "./figures";
import { isQuiet, type FoldedRow } from "./folded-rows";

/** `highest` is the most that the figure has at any step that the table may show; null if it is unknown. */
export function figureRow(highest: number | null, figure: Omit<FigureProps, "hidden" | "pictured">): FoldedRow {
  return {
    key: figure.name,
    quiet: isQuiet(highest, figure.unit),
    chosen: figure.chosen,
    row: (hidden) => <Figure key={figure.name} {...figure} hidden={hidden} pictured />,
  };
}

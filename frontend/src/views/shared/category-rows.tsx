/** Rows of a table of figures, one for each category, the top of the stack first. */

import { shareOf, type Unit } from "../../lib/bytes";
import { CATEGORIES, categoryLabel, categoryMeaning, type Category } from "../../model/categories";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "./context";
import { FigureRows } from "./figure-rows";
import { useCategoryRow } from "./focus";

interface CategoryRowsProps {
  /** Null where unknown; categories that are missing have no row. */
  bytes: ReadonlyMap<Category, number | null>;
  /** The most that each has at any step that the table may show: rows that are never seen are folded. By default `bytes`. */
  highest?: ReadonlyMap<Category, number | null>;
  total: number;
  /** The highest total. By default `total`. */
  whole?: number;
  unit: Unit;
  source: (category: Category, bytes: number) => string;
  /** The category under the pointer in the chart beside the table, and what highlights one there. */
  hovered?: string | null;
  hover?: (key: string | null) => void;
}

export function CategoryRows({ bytes, highest = bytes, total, whole = total, unit, source, hovered, hover }: CategoryRowsProps) {
  const scheme = schemeOf(useStore());
  const ofCategory = useCategoryRow(hover);
  const rows = CATEGORIES.filter((category) => bytes.has(category)).reverse();
  return (
    <FigureRows
      unit={unit}
      whole={whole}
      rows={rows.map((category) => {
        const own = bytes.get(category) ?? null;
        return {
          name: category,
          highest: highest.get(category) ?? null,
          label: categoryLabel(category),
          hint: categoryMeaning(category),
          source: source(category, own ?? 0),
          bytes: own,
          share: shareOf(own ?? 0, total),
          fill: fillOf(category, null, scheme),
          focused: hovered === category,
          ...ofCategory(category, category),
        };
      })}
    />
  );
}

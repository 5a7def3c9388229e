/** Rows of a table of figures, one for each category, the top of the stack first. */

import type { Unit } from "../../lib/bytes";
import { shareOf } from "../../lib/format";
import { CATEGORIES, categoryLabel, categoryMeaning, type Category } from "../../model/categories";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "./context";
import { figureRow } from "./figure-row";
import { useCategoryRow } from "./focus";
import { FoldedRows } from "./folded-rows";

interface CategoryRowsProps {
  /** Null where unknown; categories that are missing have no row. */
  bytes: ReadonlyMap<Category, number | null>;
  /** The most that each has at any step that the table may show: rows that are never seen are folded. By default `bytes`. */
  highest?: ReadonlyMap<Category, number | null>;
  total: number;
  unit: Unit;
  source: (category: Category, bytes: number) => string;
  /** The category under the pointer in the chart beside the table, and what highlights one there. */
  hovered?: string | null;
  hover?: (key: string | null) => void;
}

export function CategoryRows({ bytes, highest = bytes, total, unit, source, hovered, hover }: CategoryRowsProps) {
  const scheme = schemeOf(useStore());
  const ofCategory = useCategoryRow(hover);
  const rows = CATEGORIES.filter((category) => bytes.has(category)).reverse();
  return (
    <FoldedRows
      columns={3}
      rows={rows.map((category) => {
        const own = bytes.get(category) ?? null;
        return figureRow(highest.get(category) ?? null, {
          name: category,
          label: categoryLabel(category),
          hint: categoryMeaning(category),
          source: source(category, own ?? 0),
          bytes: own,
          share: shareOf(own ?? 0, total),
          unit,
          fill: fillOf(category, null, scheme),
          focused: hovered === category,
          ...ofCategory(category, category),
        });
      })}
    />
  );
}

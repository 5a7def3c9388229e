/** Rows of a breakdown beside a picture; those that are small at every step are folded into one row with their sum. */

import { isMinor, type Unit } from "../../lib/bytes";
import { Figure, useFigureText, type FigureProps } from "./figures";
import { FoldedRows } from "./folded-rows";

export interface BreakdownRow extends Omit<FigureProps, "hidden" | "pictured" | "unit"> {
  /** The most that the figure has at any step that the table may show; null if it is unknown. */
  highest: number | null;
}

interface FigureRowsProps {
  rows: readonly BreakdownRow[];
  /** The most that the sum of the rows has at any such step: which rows are small does not change under the pointer. */
  whole: number;
  unit: Unit;
}

export function FigureRows({ rows, whole, unit }: FigureRowsProps) {
  const text = useFigureText(unit);
  const isSmall = ({ highest, chosen }: BreakdownRow): boolean => !chosen && isMinor(highest, whole);
  const sum = rows.filter(isSmall).reduce((total, { bytes }) => total + (bytes ?? 0), 0);
  return (
    <FoldedRows
      columns={3}
      sums={
        <>
          <td class="figure">{text(sum)}</td>
          <td class="share" />
        </>
      }
      rows={rows.map(({ highest, ...figure }) => ({
        key: figure.name,
        quiet: isMinor(highest, whole),
        chosen: figure.chosen,
        row: (hidden) => <Figure key={figure.name} {...figure} unit={unit} hidden={hidden} pictured />,
      }))}
    />
  );
}

/** Rows of a table of figures; those that show nothing are folded into one row until it is opened. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { formatFigure, type Unit } from "../../lib/bytes";
import { plural } from "../../lib/format";

/** Whether a figure is zero, or so small that its column shows no digit of it. */
export const isQuiet = (bytes: number | null, unit: Unit): boolean => bytes !== null && /^(0|[<>]-?0\.01)$/.test(formatFigure(bytes, unit));

export interface FoldedRow {
  key: string;
  /** Whether it may be folded: for all steps at once, so that no row comes or goes under the pointer. */
  quiet: boolean;
  /** Whether it is selected, and therefore shown. */
  chosen?: boolean | undefined;
  row: (hidden: boolean) => ComponentChildren;
}

interface FoldedRowsProps {
  rows: readonly FoldedRow[];
  columns: number;
  /** The sums of what is folded. */
  sums?: ComponentChildren;
}

/** One quiet row is shown: folding it saves nothing. */
export function FoldedRows({ rows, columns, sums }: FoldedRowsProps) {
  const [open, setOpen] = useState(false);
  const quiet = rows.filter((one) => one.quiet && !one.chosen);
  const folds = quiet.length > 1;
  return (
    <>
      {rows.map((one) => one.row(folds && !open && quiet.includes(one)))}
      {folds && (
        <tr class="folded-rows">
          <th scope="row" colSpan={sums === undefined || open ? columns : 1}>
            <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
              {open ? "Show fewer" : plural(quiet.length, "other")}
            </button>
          </th>
          {!open && sums}
        </tr>
      )}
    </>
  );
}

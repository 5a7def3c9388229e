/** Rows of a table of figures; those that matter little are folded into one row until it is opened. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { plural } from "../../lib/bytes";

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

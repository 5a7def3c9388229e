/** Bytes by category of a measured peak beside those of a predicted one. */

import { unitOf } from "../../lib/bytes";
import { categoryMeaning, groupKey } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import { FigureTable, UnitButton } from "./figures";
import { useCategoryRow } from "./focus";
import { tipOf } from "./tips";
import { SizeCell, VersusRow } from "./versus";

interface MeasuredPanelProps {
  label: string;
  testid: string;
  /** What the prediction is for: the head of its column. */
  name: string;
  note: string;
  /** Null: no such step was traced. */
  measured: { step: number; in_use_bytes: number } | null;
  predicted: number | null;
  deltas: readonly GroupDelta[];
  hover?: (key: string | null) => void;
}

export function MeasuredPanel({ label, testid, name, note, measured, predicted, deltas, hover }: MeasuredPanelProps) {
  const ofCategory = useCategoryRow(hover);
  const peak = measured?.in_use_bytes ?? null;
  const unit = unitOf(Math.max(peak ?? 0, predicted ?? 0));
  return (
    <aside class="panel" aria-label={label}>
      <header class="panel-head">
        <h2>
          By category
          <UnitButton unit={unit} />
        </h2>
        <p class="small">
          {measured && `measured: peak of step ${measured.step}; `}
          {note}
        </p>
      </header>
      <FigureTable kind="versus" testid={testid}>
        <thead>
          <tr>
            <td />
            <th scope="col">measured</th>
            <th scope="col">{name}</th>
          </tr>
        </thead>
        <tbody>
          {[...deltas].reverse().map(({ group, from, to }) => (
            <VersusRow
              key={groupKey(group)}
              group={group}
              from={measured ? from : null}
              to={to}
              unit={unit}
              tip={[...(measured ? [tipOf(from, "measured")] : []), tipOf(to, "predicted"), categoryMeaning(group.category)].join("\n")}
              events={ofCategory(groupKey(group), group.category)}
            />
          ))}
        </tbody>
        <tbody class="totals">
          <tr class="strong" data-figure="total" data-from={peak ?? ""} data-to={predicted ?? ""}>
            <th scope="row">peak</th>
            <SizeCell bytes={peak} unit={unit} />
            <SizeCell bytes={predicted} unit={unit} />
          </tr>
        </tbody>
      </FigureTable>
    </aside>
  );
}

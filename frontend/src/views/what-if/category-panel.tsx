/** Measured and predicted bytes by category: the legend of the bars. */

import { unitOf, type Unit } from "../../lib/bytes";
import { categoryMeaning, groupKey } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import { totalOf, type WhatIf } from "../../model/what-if";
import { FigureTable, UnitButton } from "../shared/figures";
import { useCategoryRow } from "../shared/focus";
import { tipOf } from "../shared/tips";
import { SizeCell, VersusRow } from "../shared/versus";

interface CategoryPanelProps {
  answer: WhatIf;
  deltas: readonly GroupDelta[];
  hover: (key: string | null) => void;
}

interface RowProps {
  delta: GroupDelta;
  isMeasured: boolean;
  unit: Unit;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
}

function Row({ delta: { group, from, to }, isMeasured, unit, events }: RowProps) {
  const lines = [...(isMeasured ? [tipOf(from, "measured")] : []), tipOf(to, "predicted"), categoryMeaning(group.category)];
  return <VersusRow group={group} from={isMeasured ? from : null} to={to} unit={unit} tip={lines.join("\n")} events={events} />;
}

export function CategoryPanel({ answer: { measured, ledger }, deltas, hover }: CategoryPanelProps) {
  const ofCategory = useCategoryRow(hover);
  const predicted = totalOf(ledger);
  const unit = unitOf(Math.max(measured?.in_use_bytes ?? 0, predicted));
  return (
    <aside class="panel" aria-label="Categories, measured and predicted">
      <header class="panel-head">
        <h2>
          By category
          <UnitButton unit={unit} />
        </h2>
        <p class="small">
          {measured && `measured: peak of step ${measured.step}; `}
          predicted: peak
        </p>
      </header>
      <FigureTable kind="versus" testid="predicted">
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col">measured</th>
            <th scope="col">predicted</th>
          </tr>
        </thead>
        <tbody>
          {[...deltas].reverse().map((delta) => (
            <Row
              key={groupKey(delta.group)}
              delta={delta}
              isMeasured={measured !== null}
              unit={unit}
              events={ofCategory(groupKey(delta.group), delta.group.category)}
            />
          ))}
        </tbody>
        <tbody class="totals">
          <tr class="strong" data-figure="total" data-from={measured?.in_use_bytes ?? ""} data-to={predicted}>
            <th scope="row">peak</th>
            <SizeCell bytes={measured?.in_use_bytes ?? null} unit={unit} />
            <SizeCell bytes={predicted} unit={unit} />
          </tr>
        </tbody>
      </FigureTable>
    </aside>
  );
}

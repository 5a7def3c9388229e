/** Measured and predicted bytes by category: the legend of the bars. */

import { unitOf, type Unit } from "../../lib/bytes";
import { categoryMeaning, groupKey, groupLabel } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import { totalOf, type WhatIf } from "../../model/what-if";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { FigureTable, Swatch, UnitButton, rowClasses, rowEvents, useFigureText } from "../shared/figures";
import { useCategoryRow } from "../shared/focus";
import { tipOf } from "../shared/tips";

function Size({ bytes, unit }: { bytes: number | null; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" data-bytes={bytes ?? ""}>
      {bytes === null ? "–" : text(bytes)}
    </td>
  );
}

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
  const scheme = schemeOf(useStore());
  const lines = [...(isMeasured ? [tipOf(from, "measured")] : []), tipOf(to, "predicted"), categoryMeaning(group.category)];
  return (
    <tr
      data-figure={groupKey(group)}
      data-from={isMeasured ? from : ""}
      data-to={to}
      data-tip={lines.join("\n")}
      class={rowClasses({ choosable: true, zero: from === 0 && to === 0, focused: events.chosen })}
      {...rowEvents(events)}
    >
      <th scope="row">
        <Swatch fill={fillOf(group.category, group.trainable, scheme)} />
        <span class="label">{groupLabel(group)}</span>
      </th>
      <Size bytes={isMeasured ? from : null} unit={unit} />
      <Size bytes={to} unit={unit} />
    </tr>
  );
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
          predicted: simulated peak
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
            <th scope="row">total</th>
            <Size bytes={measured?.in_use_bytes ?? null} unit={unit} />
            <Size bytes={predicted} unit={unit} />
          </tr>
        </tbody>
      </FigureTable>
    </aside>
  );
}

/** Bytes by category before and with the plan. */

import { unitOf } from "../../lib/bytes";
import { categoryMeaning, groupKey } from "../../model/categories";
import { planDeltas, type Plan } from "../../model/plan";
import { FigureTable, UnitButton } from "../shared/figures";
import { useCategoryRow } from "../shared/focus";
import { tipOf } from "../shared/tips";
import { SizeCell, VersusRow } from "../shared/versus";

export function PlanPanel({ plan }: { plan: Plan }) {
  const ofCategory = useCategoryRow();
  const { measured, peak_bytes: peak } = plan;
  const unit = unitOf(Math.max(measured?.in_use_bytes ?? 0, peak ?? 0));
  return (
    <aside class="panel" aria-label="Categories, measured and planned">
      <header class="panel-head">
        <h2>
          By category
          <UnitButton unit={unit} />
        </h2>
        <p class="small">
          {measured && `measured: peak of step ${measured.step}; `}
          {plan.fits === false ? "smallest: predicted peak" : "plan: predicted peak"}
        </p>
      </header>
      <FigureTable kind="versus" testid="plan-ledger">
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col">measured</th>
            <th scope="col">{plan.fits === false ? "smallest" : "plan"}</th>
          </tr>
        </thead>
        <tbody>
          {planDeltas(plan)
            .reverse()
            .map(({ group, from, to }) => (
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
          <tr class="strong" data-figure="total" data-from={measured?.in_use_bytes ?? ""} data-to={peak ?? ""}>
            <th scope="row">peak</th>
            <SizeCell bytes={measured?.in_use_bytes ?? null} unit={unit} />
            <SizeCell bytes={peak} unit={unit} />
          </tr>
        </tbody>
      </FigureTable>
    </aside>
  );
}

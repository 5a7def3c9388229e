/** What makes a run fit into a budget: the plan, its curve, its layers, and the code. */

import { useRef } from "preact/hooks";

import { formatBytes, unbroken } from "../../lib/bytes";
import {
  budgetOf,
  optionsTable,
  planDeltas,
  planNotes,
  planSentence,
  planVerdict,
  rangeOf,
  timeText,
  type Plan,
} from "../../model/what-if";
import { Code } from "../shared/code";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { Fact } from "../shared/fact";
import { Known } from "../shared/known";
import { MeasuredPanel } from "../shared/measured-panel";
import { Fault, NoticeList, Skeleton } from "../shared/states";
import { BudgetForm } from "./budget-form";
import { PlanCurve, PlanCurveDrawing } from "./plan-curve";
import { Options, Segments } from "./plan-tables";

/** Size of the saved curve in pixels. */
const SAVED = { width: 640, height: 420 };

function Facts({ plan }: { plan: Plan }) {
  const { peak_bytes: peak, low_bytes: low, high_bytes: high, recorded_peak_bytes: recorded, extra_time: time } = plan;
  if (peak === null || low === null || high === null) return null;
  return (
    <dl class="prediction">
      <Fact name="peak_bytes" label="predicted peak" value={formatBytes(peak)} note={rangeOf({ low_bytes: low, high_bytes: high })} />
      {recorded !== null && recorded !== peak && <Fact name="recorded_peak_bytes" label="unchanged" value={formatBytes(recorded)} />}
      {plan.segments.length > 0 && (
        <Fact name="extra_time" label="step time" value={timeText(time)} note={time === null ? "" : plan.time_source} />
      )}
    </dl>
  );
}

function Answer({ plan }: { plan: Plan }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const hasCurve = plan.curve.length > 1;
  useExport({
    table: () => optionsTable(plan),
    ...(hasCurve && { drawing: () => <PlanCurveDrawing plan={plan} scheme={scheme} {...SAVED} /> }),
  });
  return (
    <div class="answer">
      <div class="answer-head">
        <h2 class="verdict" data-testid="plan-verdict" data-verdict={planVerdict(plan)} aria-live="polite">
          {unbroken(planSentence(plan))}
        </h2>
        <Facts plan={plan} />
        <NoticeList sentences={planNotes(plan)} testid="plan-sentences" />
        {plan.demand_bytes !== null && (
          <Known>
            <dl class="prediction">
              <Fact name="demand_bytes" label="live at once" value={formatBytes(plan.demand_bytes)} note="no allocator needs less" />
            </dl>
          </Known>
        )}
      </div>
      {plan.fits !== null && (
        <div class="body">
          <div class="picture fit-parts">
            {plan.code !== "" && <Code title="Apply the plan">{plan.code}</Code>}
            {hasCurve && (
              <PlanCurve
                plan={plan}
                scheme={scheme}
                choose={store.recordedOnly ? undefined : (point) => store.choose({ budget: budgetOf(point) })}
              />
            )}
            {plan.options.length > 1 && <Options plan={plan} />}
            <Segments plan={plan} />
          </div>
          <MeasuredPanel
            label="Categories, measured and planned"
            testid="plan-ledger"
            name={plan.fits === false ? "smallest" : "plan"}
            measured={plan.measured}
            predicted={plan.peak_bytes}
            deltas={planDeltas(plan)}
          />
        </div>
      )}
    </div>
  );
}

export function FitView() {
  const store = useStore();
  const { value, error } = store.plan.value;
  // While the next answer is computed, the last one stays, so that nothing moves.
  const latest = useRef<Plan | null>(null);
  if (value !== null) latest.current = value;
  const shown = error === null ? (value ?? latest.current) : value;
  return (
    <div class="what-if fit" data-testid="fit" aria-busy={value === null && error === null}>
      <BudgetForm />
      {error !== null && <Fault sentence={error} retry={() => void store.reload()} />}
      {shown && <Answer plan={shown} />}
      {!shown && error === null && <Skeleton />}
    </div>
  );
}

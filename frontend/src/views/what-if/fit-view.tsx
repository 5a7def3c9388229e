/** What makes a run fit into a budget: the plan, its curve, its layers, and the code. */

import { useRef } from "preact/hooks";

import { formatBytes, unbroken, plural } from "../../lib/bytes";
import {
  budgetOf,
  optionsTable,
  ledgerDeltas,
  planNotes,
  planSentence,
  verdictOf,
  rangeText,
  timeText,
  chosenOption,
} from "../../model/what-if";
import { schemeOf, useStore, useDraft } from "../shared/context";
import { useExport } from "../shared/export";
import { Fact } from "../shared/figures";
import { Code, Known, Fault, NoticeList, Skeleton } from "../shared/states";
import { MeasuredPanel } from "../shared/versus";
import { PlanCurve, PlanCurveDrawing } from "./plan-curve";
import type { Plan, PlanOption } from "../../schema";

function BudgetForm() {
  const store = useStore();
  const applied = store.recordedOnly ? "" : store.choices.value.budget;
  const field = useDraft(applied, (value) => {
    if (store.choices.peek().budget !== value) store.choose({ budget: value.trim() });
  });
  return (
    <form class="conditions" aria-label="Budget" onSubmit={(event) => event.preventDefault()}>
      <label class="condition budget" data-tip="The most that the peak may be, such as 8GiB">
        <span>budget</span>
        <input type="text" name="budget" placeholder="capacity" disabled={store.recordedOnly} {...field} />
      </label>
      {store.recordedOnly && <p class="small">A report contains the plan for the capacity only. Other budgets need TensorBoard.</p>}
    </form>
  );
}

function OptionRow({ option, isPlan }: { option: PlanOption; isPlan: boolean }) {
  return (
    <tr
      data-option={option.kind}
      data-bytes={option.peak_bytes}
      class={isPlan ? "selected" : ""}
      aria-current={isPlan ? "true" : undefined}
    >
      <th scope="row">{option.sentence}</th>
      <td class="number">{formatBytes(option.peak_bytes)}</td>
      <td class="number">{rangeText(option.low_bytes, option.high_bytes)}</td>
      <td>{option.fits ? "yes" : "no"}</td>
      <td class="number">{timeText(option.extra_time)}</td>
    </tr>
  );
}

function Options({ plan }: { plan: Plan }) {
  const chosen = chosenOption(plan);
  return (
    <section aria-label="Simulated changes">
      <h3>Simulated changes</h3>
      <div class="plan-scroll" tabIndex={0} role="region" aria-label="Simulated changes">
        <table class="layers plan-options" data-testid="plan-options">
          <thead>
            <tr>
              <th scope="col">change</th>
              <th scope="col" class="number">
                predicted peak
              </th>
              <th scope="col" class="number">
                range
              </th>
              <th scope="col">fits</th>
              <th scope="col" class="number">
                step time
              </th>
            </tr>
          </thead>
          <tbody>
            {plan.options.map((option) => (
              <OptionRow key={option.kind} option={option} isPlan={plan.fits === true && option === chosen} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function Segments({ plan: { segments, model, fits, budget_bytes: budget } }: { plan: Plan }) {
  const store = useStore();
  if (segments.length === 0) return null;
  return (
    <section aria-label="Recomputed layers" data-testid="segments">
      <h3>
        Recomputed layers <span class="small">each segment runs again when its gradients are due</span>
      </h3>
      <ol class="plan-segments">
        {segments.map((layers, index) => (
          <li key={index} data-segment={index}>
            <span class="small">{plural(layers.length, "layer")}</span>{" "}
            {layers.map((name) => (
              <button
                key={name}
                type="button"
                class="link"
                title="Open the layer"
                onClick={() => store.choose({ view: "layer", layer: `${model}/${name}` })}
              >
                {name}
              </button>
            ))}
          </li>
        ))}
      </ol>
      {fits && !store.recordedOnly && (
        <button type="button" class="link" onClick={() => store.choose({ view: "layers", budget: `${budget}B` })}>
          Show in the layer table
        </button>
      )}
    </section>
  );
}

const SAVED = { width: 640, height: 420 };

function Facts({ plan }: { plan: Plan }) {
  const { peak_bytes: peak, low_bytes: low, high_bytes: high, recorded_peak_bytes: recorded, extra_time: time } = plan;
  if (peak === null || low === null || high === null) return null;
  return (
    <dl class="prediction">
      <Fact name="peak_bytes" label="predicted peak" value={formatBytes(peak)} note={rangeText(low, high)} />
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
        <h2 class="verdict" data-testid="plan-verdict" data-verdict={verdictOf(plan)} aria-live="polite">
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
            deltas={ledgerDeltas(plan)}
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
      {error !== null && <Fault sentence={error} />}
      {shown && <Answer plan={shown} />}
      {!shown && error === null && <Skeleton />}
    </div>
  );
}

/**
 * The cheapest change with which a run fits into a budget: its verdict, all simulated changes, its
 * code and its layers.
 */

import { formatBytes, plural, formatKnown } from "../../lib/bytes";
import {
  chosenOption,
  fitsWord,
  planNotes,
  planSentence,
  rangeText,
  timeText,
  verdictOf,
} from "../../model/what-if";
import { useStore } from "../shared/context";
import { Choose } from "../shared/controls";
import { Fact, TableHead } from "../shared/figures";
import { Code, NoticeList } from "../shared/states";
import { appliedOf, setCondition } from "./conditions";
import { PlanDots } from "./peak-charts";
import { Verdict } from "./verdict";
import type { Plan, PlanOption } from "../../schema";

/** What a plan changes besides memory; beside its verdict if none fits. */
export const PlanNotes = ({ plan }: { plan: Plan }) => (
  <NoticeList sentences={planNotes(plan)} testid="plan-sentences" />
);

export function PlanHead({ plan }: { plan: Plan }) {
  const { extra_time: time, segments } = plan;
  return (
    <>
      <Verdict name="plan-verdict" verdict={verdictOf(plan)} sentence={planSentence(plan)} />
      {segments.length > 0 && (
        <dl class="prediction">
          <Fact
            name="extra_time"
            label="step time"
            value={timeText(time)}
            note={time === null ? "" : plan.time_source}
          />
        </dl>
      )}
      {plan.code !== "" && (
        <Code title="Apply the plan" folded>
          {plan.code}
        </Code>
      )}
      {plan.fits !== true && <PlanNotes plan={plan} />}
    </>
  );
}

const OptionRow = ({ option, isPlan }: { option: PlanOption; isPlan: boolean }) => (
  <tr
    data-option={option.kind}
    data-bytes={option.peak_bytes ?? ""}
    class={isPlan ? "selected" : ""}
    aria-current={isPlan ? "true" : undefined}
  >
    <th scope="row">{option.sentence}</th>
    <td class="number" data-tip={option.reason ?? undefined}>
      {formatKnown(option.peak_bytes)}
    </td>
    <td class="number">
      {(option.peak_source === "measured" ? "measured " : "") + rangeText(option)}
    </td>
    <td>{fitsWord(option)}</td>
    <td class="number">{timeText(option.extra_time)}</td>
  </tr>
);

function Options({ plan }: { plan: Plan }) {
  const chosen = chosenOption(plan);
  return (
    <section class="wide" aria-label="Simulated changes">
      <h3>
        Simulated changes{" "}
        <span class="small">to the recorded training, for {formatBytes(plan.budget_bytes)}</span>
      </h3>
      <div class="plan-scroll" tabIndex={0} role="region" aria-label="Table of simulated changes">
        <table class="layers plan-options" data-testid="plan-options">
          <TableHead
            names={["change", "peak", "range", "fits", "step time"]}
            numbers={["peak", "range", "step time"]}
          />
          <tbody>
            {plan.options.map((option) => (
              <OptionRow
                key={option.kind}
                option={option}
                isPlan={plan.fits === true && option === chosen}
              />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function Segments({
  plan: { segments, model, fits, budget_bytes: budget },
}: {
  plan: Plan;
}) {
  const store = useStore();
  if (segments.length === 0) return null;
  const inTable = {
    view: "layers" as const,
    conditions: { ...appliedOf(store), budget: `${budget}B` },
  };
  return (
    <section aria-label="Recomputed layers" data-testid="segments">
      <h3>
        Recomputed layers{" "}
        <span class="small">each segment runs again when its gradients are due</span>
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
        <Choose class="link" these={inTable}>
          Show in the layer table
        </Choose>
      )}
    </section>
  );
}

export function PlanParts({ plan }: { plan: Plan }) {
  const store = useStore();
  const choose = store.recordedOnly
    ? undefined
    : (budget: string) => setCondition(store, "budget", budget);
  return (
    <div class="what-if-pictures below">
      {plan.options.length > 1 && <Options plan={plan} />}
      {plan.options.length > 1 && <PlanDots plan={plan} choose={choose} />}
      <Segments plan={plan} />
    </div>
  );
}

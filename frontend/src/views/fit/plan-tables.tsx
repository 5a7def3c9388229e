/** The simulated changes, and the layers of the plan's segments. */

import { formatBytes, plural } from "../../lib/bytes";
import { chosenOption, rangeOf, timeText, type Plan, type PlanOption } from "../../model/what-if";
import { useStore } from "../shared/context";

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
      <td class="number">{rangeOf(option)}</td>
      <td>{option.fits ? "yes" : "no"}</td>
      <td class="number">{timeText(option.extra_time)}</td>
    </tr>
  );
}

export function Options({ plan }: { plan: Plan }) {
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

/** Each layer is a link to its page. */
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

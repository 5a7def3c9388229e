/** How much of the highest recorded peak is demand, and what the allocator adds. */

import { unbroken } from "../../lib/bytes";
import { demandParts } from "../../model/pool";
import type { RunInfo } from "../../model/run";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { useFetched } from "../shared/fetched";
import { tipOf } from "../shared/tips";

const CATEGORY = { demand: "activations", rounding: "rounding", unsplit: "unattributed" } as const;

export function DemandSection({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { value } = useFetched(store.fetched.demands, [run, device]);
  const demand = value?.demand;
  if (!demand) return null;
  return (
    <section class="demand" aria-label="Demand of the peak" data-testid="demand">
      <h2>
        Demand of the peak <span class="small">step {demand.step}, replayed</span>
      </h2>
      <div class="memory-bar">
        {demandParts(demand).map(({ name, label, bytes, share }) => {
          const { colour, pattern } = fillOf(CATEGORY[name], null, scheme);
          const style = { "--fill": colour, width: `${100 * share}%` };
          const figure = { "data-figure": `${name}_bytes`, "data-bytes": bytes, "data-tip": tipOf(bytes, label) };
          return <span key={name} class={`fill ${pattern}`} style={style} {...figure} />;
        })}
      </div>
      {demand.sentences.map((sentence) => (
        <p key={sentence}>{unbroken(sentence)}</p>
      ))}
    </section>
  );
}

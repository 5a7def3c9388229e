/** What a run would need under other conditions: controls, the answer, and the prediction beside the measurement. */

import { useRef } from "preact/hooks";

import { trains, type RunInfo } from "../../model/run";
import { verdictSentence, type WhatIf } from "../../model/what-if";
import { useStore } from "../shared/context";
import { Fault, Nothing, Skeleton } from "../shared/states";
import { Answer } from "./answer";
import { ConditionsForm } from "./conditions-form";

function NoRequests({ run, device, answer }: { run: RunInfo; device: string; answer: WhatIf }) {
  return (
    <Nothing title={trains(run) ? `No recorded requests of ${run.run} on ${device}` : `${run.run} has no training steps`}>
      <p>{verdictSentence(answer)}</p>
      <p>
        This view simulates the allocator on recorded training steps. <code>tb_memplugin.MemoryCallback</code> and{" "}
        <code>tb_memplugin.MemoryRecorder</code> record the requests of the steps that they trace.
      </p>
    </Nothing>
  );
}

export function WhatIfView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const { value, error } = store.whatIf.value;
  // While the next answer is computed, the last one stays, so that nothing moves.
  const latest = useRef<WhatIf | null>(null);
  if (value !== null) latest.current = value;
  const shown = error === null ? (value ?? latest.current) : value;
  if (shown?.recorded.steps.length === 0) return <NoRequests run={run} device={device} answer={shown} />;
  return (
    <div class="what-if" data-testid="what-if" aria-busy={value === null && error === null}>
      <ConditionsForm recorded={latest.current?.recorded.batch_sizes.at(-1) ?? null} />
      {error !== null && <Fault sentence={error} retry={() => void store.reload()} />}
      {shown && <Answer answer={shown} />}
      {!shown && error === null && <Skeleton />}
    </div>
  );
}

/** What a run would need under other conditions: controls, the answer, and the prediction beside the measurement. */

import { useRef } from "preact/hooks";

import { unbroken } from "../../lib/bytes";
import { trains, type RunInfo } from "../../model/run";
import { CONDITIONS, askedText, type WhatIf } from "../../model/what-if";
import { useStore } from "../shared/context";
import { Fault, Nothing, Skeleton } from "../shared/states";
import { Answer } from "./answer";
import { ConditionsForm } from "./conditions-form";

function NoRequests({ run, device, answer }: { run: RunInfo; device: string; answer: WhatIf }) {
  return (
    <Nothing title={trains(run) ? `No recorded requests of ${run.run} on ${device}` : `${run.run} has no training steps`}>
      <p>{answer.sentence}</p>
      <p>
        This view simulates the allocator on recorded training steps. <code>tb_memplugin.MemoryCallback</code> and{" "}
        <code>tb_memplugin.MemoryRecorder</code> record the requests of the steps that they trace.
      </p>
    </Nothing>
  );
}

export function WhatIfView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const { value, error, parameter } = store.whatIf.value;
  // While the next answer is computed, and after an error, the last one stays, so that nothing moves.
  const latest = useRef<WhatIf | null>(null);
  if (value !== null) latest.current = value;
  const last = latest.current?.run === run.run && latest.current.device === device ? latest.current : null;
  const shown = value ?? last;
  if (shown?.recorded.steps.length === 0) return <NoRequests run={run} device={device} answer={shown} />;
  const fault = error === null ? null : { parameter: parameter ?? null, sentence: error };
  const isOfCondition = CONDITIONS.some((name) => name === fault?.parameter);
  return (
    <div class="what-if" data-testid="what-if" aria-busy={value === null && error === null}>
      <ConditionsForm answer={shown} fault={fault} />
      {fault && !isOfCondition && <Fault sentence={fault.sentence} retry={() => void store.reload()} />}
      {fault && shown && <p class="last-answer small">Last answer: {unbroken(askedText(shown))}</p>}
      {shown && <Answer answer={shown} />}
      {!shown && error === null && <Skeleton />}
    </div>
  );
}

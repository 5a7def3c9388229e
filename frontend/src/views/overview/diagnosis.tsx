/** The first answer on a run that is not healthy: the post-mortem of its last failure with the fixes, or what grows. */

import { unbroken } from "../../lib/format";
import { growthFindings } from "../../model/findings";
import { verdictSentence, whenSentence } from "../../model/oom";
import type { RunInfo } from "../../model/run";
import { useStore } from "../shared/context";
import { useFetched } from "../shared/fetched";
import { PossibleFixes, Requester } from "../shared/fixes";
import { Sentence } from "../shared/states";

function PostMortem({ run, index }: { run: RunInfo; index: number }) {
  const store = useStore();
  const oom = store.ooms.value.value?.[index];
  if (!oom) return null;
  return (
    <section class="diagnosis failed" aria-label="Post-mortem" data-testid="diagnosis">
      <h2>
        {whenSentence(oom)} <Requester oom={oom} />
      </h2>
      <p>
        {/* The answers above have the figures. */}
        <button type="button" class="link" title="Open the post-mortem" onClick={() => store.choose({ view: "oom", oom: index })}>
          {verdictSentence(oom).split(":")[0]}
        </button>
      </p>
      <PossibleFixes run={run} oom={oom} index={index} brief />
    </section>
  );
}

function Growth({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const found = growthFindings(run, device);
  if (found.length === 0) return null;
  return (
    <section class="diagnosis growing" aria-label="Growth" data-testid="diagnosis">
      {found.map(({ sentence, view, step, zoom }) => (
        <button key={sentence} type="button" onClick={() => store.choose({ view, step, ...(zoom === null ? {} : { zoom }) })}>
          <Sentence of={unbroken(sentence)} />
        </button>
      ))}
    </section>
  );
}

export function Diagnosis({ run }: { run: RunInfo }) {
  const store = useStore();
  const device = store.device.value;
  // The server knows which failure counts: that of its answer to "Fits?".
  const answers = useFetched(store.fetched.answers, device === null ? null : [run, device, store.phase.value]).value;
  const index = answers?.find(({ name }) => name === "fits")?.evidence.oom ?? null;
  if (run.ooms > 0 && index !== null) return <PostMortem run={run} index={index} />;
  return run.status === "growing" && device !== null ? <Growth run={run} device={device} /> : null;
}

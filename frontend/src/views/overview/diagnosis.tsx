/** The first answer on a run that is not healthy: the post-mortem of its last failure with the fixes, or what grows. */

import { unbroken } from "../../lib/bytes";
import { verdictSentence, whenSentence, type Answer, type AnswerName } from "../../model/answer";
import type { RunInfo } from "../../model/run";
import { useStore } from "../shared/context";
import { choicesFor } from "../shared/evidence";
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
        {whenSentence(oom, run.devices.length > 1)} <Requester oom={oom} />
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

/** What grows, in more words than the answer above. */
function Growth({ run, answer }: { run: RunInfo; answer: Answer }) {
  const store = useStore();
  if (answer.details.length === 0) return null;
  return (
    <section class="diagnosis growing" aria-label="Growth" data-testid="diagnosis">
      <button type="button" onClick={() => store.choose(choicesFor(answer.evidence, run))}>
        <Sentence of={unbroken(answer.details.join(" "))} />
      </button>
    </section>
  );
}

export function Diagnosis({ run }: { run: RunInfo }) {
  const store = useStore();
  const device = store.device.value;
  // The server knows which failure counts: that of its answer to "Fits?".
  const answers = useFetched(store.fetched.answers, device === null ? null : [run, device, store.phase.value]).value;
  const answerTo = (question: AnswerName): Answer | undefined => answers?.find(({ name }) => name === question);
  const index = answerTo("fits")?.evidence.oom ?? null;
  if (run.ooms > 0 && index !== null) return <PostMortem run={run} index={index} />;
  const growing = answerTo("growing");
  return run.status === "growing" && growing ? <Growth run={run} answer={growing} /> : null;
}

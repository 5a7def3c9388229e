/** Post-mortems of failed allocations: request, verdict, possible fixes, memory by category and layer. */

import { verdictSentence, whenSentence, type Oom } from "../../model/answer";
import type { RunInfo } from "../../model/run";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { PossibleFixes, Requester } from "../shared/fixes";
import { MapView } from "../shared/memory-map/memory-map-view";
import { Fault, NoticeList, Nothing, Skeleton } from "../shared/states";
import { OomDrawing } from "./oom-drawing";
import { FailurePanel, Request } from "./oom-figures";

function PostMortem({ run, oom, index }: { run: RunInfo; oom: Oom; index: number }) {
  const scheme = schemeOf(useStore());
  useExport({
    table: () => ({
      columns: ["layer", "category", "trainable", "bytes", "rounding_bytes"],
      rows: oom.ledger.map(({ layer, category, trainable, bytes, rounding_bytes }) => [layer, category, trainable, bytes, rounding_bytes]),
    }),
    drawing: () => <OomDrawing oom={oom} scheme={scheme} />,
    ...(oom.chunks !== null && { legend: () => [] }),
  });
  return (
    <div class="oom" data-testid="oom" data-verdict={oom.verdict ?? ""}>
      <div class="body">
        <div class="picture">
          <p class="small">
            {whenSentence(oom, run.devices.length > 1)} <Requester oom={oom} />
          </p>
          <h2 class="verdict">{verdictSentence(oom)}</h2>
          <Request oom={oom} />
          <h3 class="fixes-head">
            Possible fixes <span class="small">peak</span>
          </h3>
          <PossibleFixes run={run} oom={oom} index={index} />
          <NoticeList sentences={oom.not_available} />
        </div>
        <FailurePanel oom={oom} />
      </div>
      {oom.chunks !== null && <MapView run={run} place={{ oom: index }} />}
    </div>
  );
}

function NoFailure({ run }: { run: RunInfo }) {
  return (
    <Nothing title={`No step of ${run.run} ran out of memory`}>
      <p>
        If a step fails under <code>tb_memplugin.MemoryCallback</code> or <code>tb_memplugin.MemoryRecorder</code>, this view shows the
        failed allocation, whether memory was too small or fragmented, memory by category and layer, and possible fixes.
      </p>
      <p>
        For a job that failed without them, import its log or its dump (<code>TF_BFC_MEMORY_DUMP</code>):
      </p>
      <pre tabIndex={0}>
        <code>tb-memplugin import training.log --logdir runs</code>
      </pre>
    </Nothing>
  );
}

export function OomView({ run }: { run: RunInfo }) {
  const store = useStore();
  if (run.ooms === 0) return <NoFailure run={run} />;
  const { value, error } = store.ooms.value;
  if (value === null) return error === null ? <Skeleton /> : <Fault sentence={error} retry={() => void store.reload()} />;
  const index = Math.min(store.choices.value.oom, value.length - 1);
  const oom = value[index];
  if (!oom) return <NoFailure run={run} />;
  return (
    <>
      {value.length > 1 && (
        <label class="select failures">
          <span>failure</span>
          <select value={index} onChange={(event) => store.choose({ oom: Number(event.currentTarget.value) })}>
            {value.map((one, place) => (
              <option key={place} value={place}>
                {whenSentence(one)}
              </option>
            ))}
          </select>
        </label>
      )}
      <PostMortem key={`${run.run} ${index}`} run={run} oom={oom} index={index} />
    </>
  );
}

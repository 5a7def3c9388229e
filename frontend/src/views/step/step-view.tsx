/** The timeline of the selected step, and its loading. */

import { plural } from "../../lib/bytes";
import type { RunInfo } from "../../model/run";
import type { SnapshotSummary } from "../../model/snapshot";
import { useStore } from "../shared/context";
import { useFetched } from "../shared/fetched";
import { Fault, NoticeList, Nothing, Skeleton } from "../shared/states";
import { Chooser } from "./step-bars";
import { StepTimeline } from "./step-timeline";

function whyNone({ step, not_available }: SnapshotSummary): string {
  const said = not_available.find((sentence) => sentence.includes("misses events"));
  const why = said ? "its trace misses events" : "it was not kept (long runs keep some timelines, very long steps have none)";
  return `No timeline of step ${step}: ${why}`;
}

function NoTimelines({ snapshots, run, phase }: { snapshots: readonly SnapshotSummary[]; run: RunInfo; phase: string }) {
  const traced = snapshots.filter((snapshot) => snapshot.phase === phase);
  const last = traced.at(-1);
  if (last) {
    return (
      <Nothing title={`${run.run} has no step timeline`}>
        <p>{whyNone(last)}.</p>
        <p>{plural(traced.length, "step was", "steps were")} traced; Overview and Layers show the breakdown at their peaks.</p>
      </Nothing>
    );
  }
  return (
    <Nothing title={`No ${phase} step of this run was traced on this device`}>
      <p>
        Step timelines come from traced steps. Tracing is off with <code>overhead=0</code> and for replicas; choose the steps with:
      </p>
      <pre tabIndex={0}>
        <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
      </pre>
    </Nothing>
  );
}

/** What to show while there is no timeline: an error, that something is loading, or why there is none. */
function NoTimeline({ run }: { run: RunInfo }) {
  const store = useStore();
  const snapshots = store.snapshotList.value;
  const needed = [store.timelineList.value, store.whole.value, snapshots];
  const error = needed.find((loaded) => loaded.value === null && loaded.error !== null)?.error;
  if (error) return <Fault sentence={error} retry={() => void store.reload()} />;
  if (snapshots.value === null || needed.some(({ value }) => value === null)) return <Skeleton />;
  return <NoTimelines snapshots={snapshots.value} run={run} phase={store.phase.value} />;
}

export function StepView({ run }: { run: RunInfo }) {
  const store = useStore();
  const listed = store.timelineList.value;
  const shown = store.shownTimeline.value;
  const at = shown && `${shown.phase}/${shown.step}`;
  const { value, error } = useFetched(store.fetched.timelines, store.stepOf(shown));
  const retry = (): void => void store.reload();
  if (!shown) return <NoTimeline run={run} />;
  return (
    <>
      {listed.error !== null && <Fault sentence={`Not up to date: ${listed.error}`} retry={retry} />}
      {value ? (
        <StepTimeline key={`${run.run}/${store.device.value}/${at}`} timeline={value}>
          <Chooser />
          <NoticeList sentences={value.not_available} testid="not-available" />
        </StepTimeline>
      ) : (
        <>
          <div class="timeline-alone">
            <Chooser />
          </div>
          {error === null ? <Skeleton /> : <Fault sentence={error} retry={retry} />}
        </>
      )}
    </>
  );
}

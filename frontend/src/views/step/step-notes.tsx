/** Notes on steps without a timeline. */

import { plural } from "../../lib/format";
import type { RunInfo } from "../../model/run";
import type { SnapshotSummary } from "../../model/snapshot";
import { Nothing } from "../shared/states";

function whyNone({ step, not_available }: SnapshotSummary): string {
  const said = not_available.find((sentence) => sentence.includes("misses events"));
  const why = said
    ? "its trace misses events"
    : "it was not kept (long runs keep some timelines, earlier versions none, very long steps have none)";
  return `No timeline of step ${step}: ${why}`;
}

export function NoTimelines({ snapshots, run, phase }: { snapshots: readonly SnapshotSummary[]; run: RunInfo; phase: string }) {
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
        Step timelines come from traced steps. Tracing is on unless <code>overhead=0</code>; choose the steps with:
      </p>
      <pre tabIndex={0}>
        <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
      </pre>
    </Nothing>
  );
}

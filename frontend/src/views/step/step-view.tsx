/** The timeline of one traced step: which step, and its loading. */

import { useLayoutEffect } from "preact/hooks";

import type { RunInfo } from "../../model/run";
import { chosenTimeline } from "../../model/timeline";
import { useStore } from "../shared/context";
import { Fault, NoticeList, Skeleton } from "../shared/states";
import { Chooser } from "./step-chooser";
import { Nearest, NoTimelines } from "./step-notes";
import { StepTimeline } from "./step-timeline";

export function StepView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const phase = store.phase.value;
  useLayoutEffect(() => store.wantTimelinesIn(run, device), [run, device]);
  const listed = store.timelinesIn(run, device);
  const snapshots = store.snapshotList.value;
  const list = listed.value?.filter((timeline) => timeline.phase === phase) ?? null;
  const shown = list && chosenTimeline(list, store.choices.value.step);
  const at = shown && `${shown.phase}/${shown.step}`;
  useLayoutEffect(() => {
    if (shown) store.wantTimelineIn(run, device, shown);
  }, [run, device, at]);
  const retry = (): void => void store.reload();
  if (list === null) return listed.error === null ? <Skeleton /> : <Fault sentence={listed.error} retry={retry} />;
  if (!shown) {
    if (snapshots.value === null) return snapshots.error === null ? <Skeleton /> : <Fault sentence={snapshots.error} retry={retry} />;
    return <NoTimelines snapshots={snapshots.value} run={run} phase={phase} />;
  }
  const { value, error } = store.timelineIn(run, device, shown);
  return (
    <>
      {listed.error !== null && <Fault sentence={`Not up to date: ${listed.error}`} retry={retry} />}
      {value ? (
        <StepTimeline key={`${run.run}/${device}/${at}`} timeline={value}>
          <Chooser list={list} shown={shown} />
          <Nearest shown={shown} snapshots={snapshots.value} />
          <NoticeList sentences={value.not_available} testid="not-available" />
        </StepTimeline>
      ) : (
        <>
          <div class="timeline-alone">
            <Chooser list={list} shown={shown} />
          </div>
          {error === null ? <Skeleton /> : <Fault sentence={error} retry={retry} />}
        </>
      )}
    </>
  );
}

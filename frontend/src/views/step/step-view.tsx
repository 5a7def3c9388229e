/** The timeline of the selected step, and its loading. */

import { useLayoutEffect } from "preact/hooks";

import type { RunInfo } from "../../model/run";
import { useStore } from "../shared/context";
import { Fault, NoticeList, Skeleton } from "../shared/states";
import { Chooser } from "./step-chooser";
import { NoTimelines } from "./step-notes";
import { StepTimeline } from "./step-timeline";

/** What to show while there is no timeline: an error, that something is loading, or why there is none. */
function NoTimeline({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const snapshots = store.snapshotList.value;
  const needed = [store.timelinesIn(run, device), store.whole.value, snapshots];
  const error = needed.find((loaded) => loaded.value === null && loaded.error !== null)?.error;
  if (error) return <Fault sentence={error} retry={() => void store.reload()} />;
  if (snapshots.value === null || needed.some(({ value }) => value === null)) return <Skeleton />;
  return <NoTimelines snapshots={snapshots.value} run={run} phase={store.phase.value} />;
}

export function StepView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  useLayoutEffect(() => store.wantTimelinesIn(run, device), [run, device]);
  const listed = store.timelinesIn(run, device);
  const shown = store.shownTimeline.value;
  const at = shown && `${shown.phase}/${shown.step}`;
  useLayoutEffect(() => {
    if (shown) store.wantTimelineIn(run, device, shown);
  }, [run, device, at]);
  const retry = (): void => void store.reload();
  if (!shown) return <NoTimeline run={run} device={device} />;
  const { value, error } = store.timelineIn(run, device, shown);
  return (
    <>
      {listed.error !== null && <Fault sentence={`Not up to date: ${listed.error}`} retry={retry} />}
      {value ? (
        <StepTimeline key={`${run.run}/${device}/${at}`} timeline={value}>
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

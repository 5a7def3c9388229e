/** Held tensors and replay result of the selected step; the step under the pointer does not change them. */

import { formatCount, unitOf } from "../../lib/bytes";
import { plural } from "../../lib/format";
import { categoryMeaning } from "../../model/categories";
import { provenance, type Overview } from "../../model/overview";
import type { HeldTensorGroup, Snapshot } from "../../model/snapshot";
import { madeAt } from "../../model/survivors";
import type { Timeline } from "../../model/timeline";
import { heldTensors, replayText, sizesText } from "../../model/traced-details";
import { useStore } from "./context";
import { useFetched } from "./fetched";
import { FigureTable, useExact, useFigureText } from "./figures";
import { Known } from "./known";
import { tipOf } from "./tips";

const REPLAY_MEANING =
  "The recorder replays the step with the allocator's rules, starting from the memory map at its start. " +
  "Counted are allocations at the recorded address, and chunks equal to those of the memory map at its end.";

/** Share of the bytes in use from which held tensors are shown without a click. */
const LEAST_SHARE = 0.01;

const Text = ({ of, kind }: { of: string; kind: string }) => (
  <td class={kind}>
    <span>{of}</span>
  </td>
);

interface HeldTensorsProps {
  held: readonly HeldTensorGroup[];
  step: number;
  /** The step's bytes in use. */
  of: number;
  /** The step's timeline: it knows the lines that made tensors. */
  timeline: Timeline | null;
}

/** The step's timeline where held tensors matter and it was kept. */
function useTimeline(snapshot: Snapshot | null): Timeline | null {
  const store = useStore();
  const [run, device] = [store.primary.value, store.device.value];
  const wanted = snapshot !== null && heldShare(snapshot) >= LEAST_SHARE;
  const { value: list } = useFetched(store.fetched.timelineLists, run && device !== null && wanted ? [run, device] : null);
  const ref = wanted && list?.find(({ step, phase }) => step === snapshot.step && phase === snapshot.phase);
  return useFetched(store.fetched.timelines, store.stepOf(ref || null)).value;
}

const heldShare = ({ held_tensors: held, in_use_bytes: of }: Pick<Snapshot, "held_tensors" | "in_use_bytes">): number =>
  held.reduce((sum, { bytes }) => sum + bytes, 0) / Math.max(of, 1);

/** "train.py:42", or the first of several. */
function madeText(lines: readonly string[]): string {
  const [first, ...others] = lines;
  return first === undefined ? "" : others.length > 0 ? `${first} and ${plural(others.length, "other line")}` : first;
}

/** Open where held tensors are a part of the step's memory that matters. */
function HeldTensorsTable({ held, step, of, timeline }: HeldTensorsProps) {
  const { groups, more } = heldTensors(held);
  const matters = heldShare({ held_tensors: [...held], in_use_bytes: of }) >= LEAST_SHARE;
  const exact = useExact();
  const unit = unitOf(groups[0]?.bytes ?? 0);
  const size = useFigureText(unit);
  return (
    <details class="held-fold" open={matters}>
      <summary>
        <h3>
          Held tensors <span class="small">step {step}</span>
        </h3>
      </summary>
      <FigureTable testid="held-tensors" kind="held">
        <thead>
          <tr>
            <th scope="col">count</th>
            <th scope="col">shape</th>
            <th scope="col">dtype</th>
            <th scope="col">size, {exact ? "B" : unit}</th>
            <th scope="col">held by{timeline && ", made at"}</th>
          </tr>
        </thead>
        <tbody>
          {groups.map(({ shape, dtype, count, bytes, held_by }, index) => {
            const lines = timeline ? madeAt(timeline, { shape, dtype }) : [];
            return (
              <tr
                key={index}
                data-figure={`held_tensors:${JSON.stringify([shape, dtype, held_by])}`}
                data-bytes={bytes}
                data-tip={tipOf(
                  bytes,
                  categoryMeaning("held_tensors"),
                  `${formatCount(count)} × ${sizesText(shape)} ${dtype}`,
                  `held by ${held_by ?? "unknown"}`,
                  lines.length > 0 ? `made at ${lines.join(", ")}` : null,
                  `traced at the peak of step ${step}`,
                )}
              >
                <Text kind="count" of={formatCount(count)} />
                <Text kind="shape" of={sizesText(shape)} />
                <Text kind="dtype" of={dtype} />
                <Text kind="size" of={size(bytes)} />
                <Text kind="held-by" of={held_by ?? "unknown"} />
                {lines.length > 0 && <Text kind="made-at" of={madeText(lines)} />}
              </tr>
            );
          })}
        </tbody>
      </FigureTable>
      {more !== null && (
        <p class="small one-line" data-testid="held-more">
          {more}
        </p>
      )}
    </details>
  );
}

/** `row` is that of the selected step. */
export function TracedDetails({ overview, row }: { overview: Overview; row: number }) {
  const store = useStore();
  const source = provenance(overview, row);
  const ref = source.kind === "layer table" ? null : source.snapshot;
  const { value: snapshot } = useFetched(store.fetched.snapshots, store.stepOf(ref));
  const timeline = useTimeline(snapshot);
  if (!snapshot) return null;
  const { held_tensors: held, replay } = snapshot;
  if (held.length === 0 && replay === null) return null;
  return (
    <section class="traced-details">
      {held.length > 0 && (
        <HeldTensorsTable key={snapshot.step} held={held} step={snapshot.step} of={snapshot.in_use_bytes} timeline={timeline} />
      )}
      {replay && (
        <Known>
          <p class="small" data-testid="replay">
            {replayText(replay)}. {REPLAY_MEANING}
          </p>
        </Known>
      )}
    </section>
  );
}

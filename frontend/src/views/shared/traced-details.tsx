/** Tensors by holder and replay result of the selected step; the step under the pointer does not change them. */

import { formatCount, unitOf } from "../../lib/bytes";
import { categoryMeaning } from "../../model/categories";
import { provenance, type Overview } from "../../model/overview";
import { heldTensors, replayText, sizesText, type HeldTensorGroup } from "../../model/snapshot";
import { useStore } from "./context";
import { useFetched } from "./fetched";
import { FigureTable, useExact, useFigureText } from "./figures";
import { Known } from "./known";
import { tipOf } from "./tips";

const REPLAY_MEANING =
  "The recorder replays the step with the allocator's rules, starting from the memory map at its start. " +
  "Counted are allocations at the recorded address, and chunks equal to those of the memory map at its end.";

const Text = ({ of, kind }: { of: string; kind: string }) => (
  <td class={kind}>
    <span>{of}</span>
  </td>
);

interface HeldTensorsProps {
  held: readonly HeldTensorGroup[];
  step: number;
}

function HeldTensorsTable({ held, step }: HeldTensorsProps) {
  const { groups, more } = heldTensors(held);
  const hasLines = groups.some(({ line }) => line !== null);
  const exact = useExact();
  const unit = unitOf(groups[0]?.bytes ?? 0);
  const size = useFigureText(unit);
  return (
    <details class="held-fold">
      <summary>
        <h3>
          Tensors by holder <span class="small">step {step}</span>
        </h3>
      </summary>
      <FigureTable testid="held-tensors" kind="held">
        <thead>
          <tr>
            <th scope="col">count</th>
            <th scope="col">shape</th>
            <th scope="col">dtype</th>
            <th scope="col">size, {exact ? "B" : unit}</th>
            <th scope="col">held by{hasLines && ", made at"}</th>
          </tr>
        </thead>
        <tbody>
          {groups.map(({ shape, dtype, count, bytes, held_by, line, retaining_path: path, category }, index) => (
            <tr
              key={index}
              data-figure={`held_tensors:${JSON.stringify([shape, dtype, held_by])}`}
              data-bytes={bytes}
              data-tip={tipOf(
                bytes,
                categoryMeaning(category),
                `${formatCount(count)} × ${sizesText(shape)} ${dtype}`,
                `held by ${held_by ?? "unknown"}`,
                path && `retaining path: ${path}`,
                line && `made at ${line}`,
                `traced at the peak of step ${step}`,
              )}
            >
              <Text kind="count" of={formatCount(count)} />
              <Text kind="shape" of={sizesText(shape)} />
              <Text kind="dtype" of={dtype} />
              <Text kind="size" of={size(bytes)} />
              <Text kind="held-by" of={held_by ?? "unknown"} />
              {line !== null && <Text kind="made-at" of={line} />}
            </tr>
          ))}
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
  if (!snapshot) return null;
  const { held_tensors: held, replay } = snapshot;
  if (held.length === 0 && replay === null) return null;
  return (
    <section class="traced-details">
      {held.length > 0 && <HeldTensorsTable key={snapshot.step} held={held} step={snapshot.step} />}
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

/**
 * What the panel of a step shows of its trace: the largest layers, tensors by holder, the result of
 * the replay.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import { later } from "../../lib/activity";
import { formatBytes, formatCount, unitOf } from "../../lib/bytes";
import { categoryMeaning, partsText } from "../../model/categories";
import { largestLayers, layerFigures, partsOf, type NamedLayer } from "../../model/layers";
import { at, measuredAt, snapshotAt, type Overview } from "../../model/overview";
import { distinctNames } from "../../model/run";
import { SIZE_MEANINGS, heldTensors, replayText, sizesText } from "../../model/snapshot";
import { NOTHING } from "../../state/resource";
import { useStore, useFetched } from "./context";
import { Choose } from "./controls";
import { Bytes, FigureTable, InUnit, PartsBar, SizeCell, useUnitName, TableHead } from "./figures";
import type { OverviewRow } from "./frame";
import { Known } from "./states";
import { figured } from "./tips";
import type { EqualTensors, HeldTensorGroup, RunInfo, TensorGroup } from "../../schema";

function LayerLink({ layer, name }: { layer: string; name: string }) {
  return (
    <Choose class="leads" these={{ view: "layer", layer }}>
      {name}
    </Choose>
  );
}

const NO_TENSORS: readonly TensorGroup[] = [];
const NO_HELD: readonly HeldTensorGroup[] = [];

/**
 * The layer table, the ledger and the largest tensors of a row: from its own trace, otherwise from
 * the trace of its breakdown.
 */
export function useLayerFigures(
  run: RunInfo | null,
  device: string | null,
  overview: Overview,
  row: number,
) {
  const store = useStore();
  const ref = snapshotAt(overview, row);
  const step = ref?.step ?? at(overview.step, row) ?? 0;
  const table = useFetched(store.fetched.layers, run && [run, device, step]);
  const ofRef = useFetched(
    store.fetched.snapshots,
    run && device !== null && ref ? [run, device, ref] : null,
  );
  const ready =
    (table.value ?? table.error) !== null &&
    (ref === null || (ofRef.value ?? ofRef.error) !== null);
  const {
    ledger = null,
    saved_for_backward: saved,
    largest_tensors: tensors = NO_TENSORS,
    held_tensors: held = NO_HELD,
  } = (ref && ofRef.value) ?? {};
  const layers = useMemo(
    () => layerFigures(table.value, ledger, saved),
    [table.value, ledger, saved],
  );
  return {
    layers,
    ref,
    step,
    ready,
    error: (ref && ofRef.error) ?? table.error,
    table: table.value,
    tensors,
    held,
  };
}

interface RowProps {
  layer: NamedLayer;
  name: string;
  /** Bytes of the longest bar. */
  longest: number;
  trainable: boolean | null;
  source: string;
}

function LayerRow({ layer, name, longest, trainable, source }: RowProps) {
  const { path, total } = layer;
  const parts = partsOf(layer);
  const tip = [path, `total: ${formatBytes(total)}, ${SIZE_MEANINGS.total}`, partsText(parts)];
  return (
    <tr data-layer={path} data-tip={[...tip, source].join("\n")}>
      <th scope="row">
        <span class="label">
          <LayerLink layer={path} name={name} />
        </span>
      </th>
      <td class="parts">
        <PartsBar parts={parts} longest={longest} trainable={trainable} />
      </td>
      <SizeCell class="figure" name={`total:${path}`} bytes={total} blank />
    </tr>
  );
}

interface LargestLayersProps extends OverviewRow {
  title?: string;
  /** How many rows there are, whether or not there are as many layers. */
  count?: number;
  /** Only frozen layers. */
  frozen?: boolean;
}

/** The layers of the step that the panel shows, in rows that are there for every step. */
export function LargestLayers({
  overview,
  row,
  title = "Largest layers",
  count = 2,
  frozen = false,
}: LargestLayersProps) {
  const store = useStore();
  const ref = snapshotAt(overview, row);
  const { snapshots } = store.fetched;
  const shown = store.stepOf(ref);
  useEffect(() => {
    if (shown === null) return undefined;
    // Wait: the pointer passes over many steps.
    return later(100, () => snapshots.want(...shown));
  }, [ref]);
  // Steps before the first traced one keep the same height.
  if (overview.snapshots.length === 0) return null;
  const { value, error } = shown === null ? NOTHING : snapshots.read(...shown);
  const ledger = value?.ledger.filter(({ trainable }) => !frozen || trainable === false);
  const layers = ledger ? largestLayers(ledger) : [];
  const names = distinctNames(layers.map(({ path }) => path));
  const why = error ?? (ref === null ? "no step traced yet" : "This trace names no layer.");
  // The layers of another step would be taken for those of this one.
  const waits = ref !== null && value === null && error === null;
  return (
    <section class={waits ? "owners waits" : "owners"} aria-busy={waits || undefined}>
      <h3>
        <Choose
          class="all-layers"
          title="Show all layers"
          these={{ view: "layers", ...(frozen && { grouping: "trainable" }) }}
        >
          {title}
        </Choose>
        {ref !== null && ref.step !== at(overview.step, row) && (
          <span class="small">step {ref.step}</span>
        )}
      </h3>
      <FigureTable kind="sizes">
        <tbody>
          {Array.from({ length: count }, (_, index) => {
            const layer = layers[index];
            if (layer === undefined || ref === null)
              return (
                <tr key={index} class="blank">
                  <th colSpan={3} title={error ?? ""}>
                    {index > 0 || waits ? "" : why}
                  </th>
                </tr>
              );
            return (
              <LayerRow
                key={index}
                layer={layer}
                name={names[index] ?? ""}
                longest={layers[0]?.total ?? 1}
                trainable={ledger?.find((one) => one.layer === layer.path)?.trainable ?? null}
                source={measuredAt(ref)}
              />
            );
          })}
        </tbody>
      </FigureTable>
    </section>
  );
}

const REPLAY_MEANING =
  "The recorder replays the step with the allocator's rules, starting from the memory map at its start. " +
  "Counted are allocations at the recorded address, and chunks equal to those of the memory map at its end.";

export const Text = ({ of, kind }: { of: ComponentChildren; kind: string }) => (
  <td class={kind}>
    <span>{of}</span>
  </td>
);

export const TensorCells = (one: Pick<EqualTensors, "shape" | "dtype" | "count" | "bytes">) => (
  <>
    <Text kind="count" of={formatCount(one.count)} />
    <Text kind="shape" of={sizesText(one.shape)} />
    <Text kind="dtype" of={one.dtype} />
    <Text kind="size" of={<Bytes of={one.bytes} />} />
  </>
);

function HeldTensorsTable({ held, step }: { held: readonly HeldTensorGroup[]; step: number }) {
  const { groups, more } = heldTensors(held);
  const hasLines = groups.some(({ line }) => line !== null);
  const shown = useStore().shownStep.value?.step;
  return (
    <details class="held-fold">
      <summary>
        <h3>Tensors by holder {step !== shown && <span class="small">step {step}</span>}</h3>
      </summary>
      <FigureTable testid="held-tensors" kind="held">
        <TableHead
          names={[
            "count",
            "shape",
            "dtype",
            `size, ${useUnitName()}`,
            `held by${hasLines ? ", made at" : ""}`,
          ]}
        />
        <tbody>
          {groups.map(
            (
              { shape, dtype, count, bytes, held_by, line, retaining_path: path, category },
              index,
            ) => (
              <tr
                key={index}
                {...figured(
                  `held_tensors:${JSON.stringify([shape, dtype, held_by])}`,
                  bytes,
                  categoryMeaning(category),
                  `${formatCount(count)} × ${sizesText(shape)} ${dtype}`,
                  `held by ${held_by ?? "unknown"}`,
                  path && `retaining path: ${path}`,
                  line && `made at ${line}`,
                  `traced at the peak of step ${step}`,
                )}
              >
                <TensorCells {...{ shape, dtype, count, bytes }} />
                <Text kind="held-by" of={held_by ?? "unknown"} />
                {line !== null && <Text kind="made-at" of={line} />}
              </tr>
            ),
          )}
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

export function TracedDetails({ overview, row }: OverviewRow) {
  const store = useStore();
  const ref = snapshotAt(overview, row);
  const { value: snapshot } = useFetched(store.fetched.snapshots, store.stepOf(ref));
  if (!snapshot) return null;
  const { held_tensors: held, replay } = snapshot;
  if (held.length === 0 && replay === null) return null;
  return (
    <section class="traced-details">
      {held.length > 0 && (
        <InUnit value={unitOf(Math.max(...held.map(({ bytes }) => bytes)))}>
          <HeldTensorsTable key={snapshot.step} held={held} step={snapshot.step} />
        </InUnit>
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

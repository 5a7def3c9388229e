/** Bytes of all layers at one step: an icicle and a table. */

import { useMemo } from "preact/hooks";

import { formatBytes, unitOf, plural } from "../../lib/bytes";
import { categoryMeaning } from "../../model/categories";
import { layerTree, tensorsAtPeak, tensorsOfMap, type Tensors } from "../../model/layer-tree";
import {
  formula,
  aboveTotal,
  layerFile,
  GROUPINGS,
  groupLayers,
  groupOf,
  type LayerFigures,
  type LayerGroup,
} from "../../model/layers";
import { instantOf, measuredAt, momentOf, type Overview } from "../../model/overview";
import { NOT_TIED } from "../../model/run";
import { SIZE_MEANINGS } from "../../model/snapshot";
import { plannedLayers } from "../../model/what-if";
import { matcher } from "../../state/runs";
import { useStore, useFetched, useChoices } from "../shared/context";
import { Search, ChoiceSegments } from "../shared/controls";
import { useExport } from "../shared/export";
import { UnitButton, InUnit } from "../shared/figures";
import { useLayerFigures } from "../shared/largest-layers";
import { Fault, Nothing, Skeleton } from "../shared/states";
import { Icicle, IcicleDrawing } from "./icicle";
import { LayerTable, isBrief, type Explain } from "./layer-table";
import type {
  Category,
  HeldTensorGroup,
  LayersAnswer,
  SnapshotRef,
  TensorGroup,
} from "../../schema";

/**
 * Whether the plan for the budget of the address recomputes a layer: of none without a budget, and
 * until the plan is there.
 */
function usePlanned(): (path: string) => boolean {
  const store = useStore();
  const [run, device, { budget, batch_size: batchSize }] = [
    store.primary.value,
    store.device.value,
    store.choices.value.conditions,
  ];
  const asked = run && device !== null && budget !== "" && !store.recordedOnly;
  const { value: plan } = useFetched(
    store.fetched.plans,
    asked ? [run, device, budget, batchSize] : null,
  );
  return useMemo(() => plannedLayers(plan), [plan]);
}

function Source({ of }: { of: SnapshotRef | null }) {
  if (of === null) return <p class="small">Only weights and optimizer state are known.</p>;
  return (
    <p class="unseen" data-testid="layers-step" data-step={of.step}>
      {`A${instantOf(of).slice(1)}.`}
    </p>
  );
}

const sourceOf = (of: SnapshotRef | null): string =>
  of ? measuredAt(of) : "from the layer table (Keras)";

function explainer(table: LayersAnswer | null, of: SnapshotRef | null): Explain {
  const rows = new Map((table?.layers ?? []).map((layer) => [layer.path, layer]));
  const made = { optimizer: table?.optimizer ?? null, batch_size: of?.batch_size ?? null };
  const source = sourceOf(of);
  const madeOf = (of: LayerFigures | LayerGroup, category: Category): string | null => {
    if ("title" in of) return plural(of.layers.length, "row summed", "rows summed");
    if (of.path === null || of.bytes[category] === 0) return "";
    return formula(category, rows.get(of.path) ?? null, of.bytes[category], made);
  };
  return (of, figure) => {
    if (figure === "others") return `total of the categories too small for a column\n${source}`;
    if (figure === "saved")
      return [SIZE_MEANINGS[figure], aboveTotal(of), source].filter(Boolean).join("\n");
    if (figure === "persistent" || figure === "total") return `${SIZE_MEANINGS[figure]}\n${source}`;
    return [categoryMeaning(figure), madeOf(of, figure), source].filter(Boolean).join("\n");
  };
}

function LayersBar({ said, brief, of }: { said: string; brief: boolean; of: SnapshotRef | null }) {
  const store = useStore();
  const { sort } = useChoices();
  const toggle = (): void =>
    store.choose(
      brief ? { columns: true } : { columns: false, sort: isBrief(sort) ? sort : "total" },
    );
  return (
    <div class="layers-bar">
      <Search label="Search layers by regular expression" placeholder="Search (regex)" />
      <ChoiceSegments of="grouping" named={false} label="group by" options={GROUPINGS} />
      <Source of={of} />
      <span class="small" role="status">
        {said}
      </span>
      <div class="segments">
        <button type="button" aria-pressed={!brief} onClick={toggle}>
          All columns
        </button>
      </div>
      <UnitButton />
    </div>
  );
}

const NO_LAYERS = "Pass the model to the recorder: it then records the layer table.";

const NO_TENSORS: Tensors = new Map();

/**
 * The tensors of a traced step, from its timeline or from the memory map of its failure, once they
 * are there.
 */
function useTensors(
  overview: Overview,
  of: SnapshotRef | null,
  known: readonly TensorGroup[],
  held: readonly HeldTensorGroup[],
): Tensors {
  const store = useStore();
  const oom = overview.failures.findLast(({ step }) => of?.at_failure && step === of.step)?.oom;
  const run = store.primary.value;
  const map = useFetched(
    store.fetched.maps,
    run && oom !== undefined ? [run, { oom }] : null,
  ).value;
  const listed = store.shownTimeline.value;
  const isListed =
    of !== null && !of.at_failure && listed?.step === of.step && listed.phase === of.phase;
  const timeline = useFetched(store.fetched.timelines, isListed ? store.stepOf(of) : null).value;
  return useMemo(
    () => (map ? tensorsOfMap(map, known) : timeline ? tensorsAtPeak(timeline, held) : NO_TENSORS),
    [map, timeline, known, held],
  );
}

export function LayersView({ overview }: { overview: Overview }) {
  const store = useStore();
  const { search, grouping, sort, columns } = useChoices();
  const brief = !columns && isBrief(sort);
  const selected = store.shownStep.value ?? { overview, row: 0 };
  const {
    layers,
    ref,
    step,
    ready,
    error,
    table,
    tensors: known,
    held,
  } = useLayerFigures(store.primary.value, store.device.value, selected.overview, selected.row);
  const isPlanned = usePlanned();
  const explain = useMemo(() => explainer(table, ref), [table, ref]);
  const all = useMemo(() => groupOf(null, layers), [layers]);
  const match = useMemo(() => matcher(search), [search]);
  const shown = useMemo(
    () => layers.filter((layer) => match.test(`${layer.path ?? NOT_TIED} ${layer.type ?? ""}`)),
    [layers, match],
  );
  const groups = useMemo(() => groupLayers(shown, grouping, sort), [shown, grouping, sort]);
  const tensors = useTensors(selected.overview, ref, known, held);
  const tree = useMemo(() => layerTree(shown, tensors, grouping), [shown, tensors, grouping]);
  const totals = useMemo(
    () => groupOf(shown.length === layers.length ? "total" : "total found", shown),
    [shown, layers],
  );
  const title = `Memory of ${overview.run} at step ${step} by layer`;
  useExport({
    table: () => layerFile(shown),
    drawing: () => <IcicleDrawing tree={tree} title={title} />,
  });
  if (!ready) return <Skeleton />;
  const fault = error !== null && <Fault sentence={error} />;
  if (layers.length === 0)
    return fault || <Nothing title="The layers are unknown" sentences={[NO_LAYERS]} />;
  const found =
    shown.length === layers.length
      ? ""
      : `${formatBytes(totals.total)} of ${formatBytes(all.total)}`;
  const unit = unitOf(
    layers.reduce(
      (most, { total: held, output_bytes: output }) => Math.max(most, held, output ?? 0),
      0,
    ),
  );
  return (
    <InUnit value={unit}>
      <div class="layers-view">
        {fault}
        <Icicle
          tree={tree}
          moment={ref ? momentOf(ref) : "as far as known"}
          figure={ref ? "in_use_bytes" : "known_bytes"}
          source={sourceOf(ref)}
        />
        <LayersBar said={match.fault ?? found} brief={brief} of={ref} />
        <LayerTable {...{ groups, all, totals, brief, explain, isPlanned }} />
      </div>
    </InUnit>
  );
}

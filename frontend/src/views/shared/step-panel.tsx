/**
 * The figures of one step. The rows are always the same, so the panel does not move with the
 * cursor.
 */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { unitOf, formatDuration, formatWallTime, shareOf, type Unit } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { categoryMeaning, groupKey, groupLabel } from "../../model/categories";
import { at, breakdown, provenance, provenanceSentence, type Overview } from "../../model/overview";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore, useCategoryRow, type Focus } from "./context";
import { FigureRows, FigureTable, UnitButton, WordFigure } from "./figures";
import { startOf, type OverviewRow } from "./frame";
import { LargestLayers } from "./largest-layers";

interface PanelProps {
  overview: Overview;
  row: number;
  selected: OverviewRow;
  focus: Focus;
  pointed: string | null;
  hover: (key: string | null) => void;
  children?: ComponentChildren;
}

export function PanelHead({
  overview,
  row,
  unit,
}: {
  overview: Overview;
  row: number;
  unit: Unit;
}) {
  const store = useStore();
  const step = at(overview.step, row);
  const epoch = at(overview.epoch, row);
  const time = at(overview.wall_time, row);
  return (
    <header class="panel-head">
      <h2 data-testid="step" data-step={step ?? ""}>
        Step {step ?? "?"}
        <UnitButton unit={unit} />
      </h2>
      <p
        class="small one-line"
        title={
          time === null
            ? ""
            : `${formatWallTime(time)}, ${formatDuration(time - startOf(store.whole.value.value ?? overview))} after start`
        }
      >
        {epoch === null || overview.epochs.length < 2 ? "" : `epoch ${epoch}`}
      </p>
    </header>
  );
}

export const sourceOf = (overview: Overview, row: number): string =>
  `Step ${at(overview.step, row) ?? "?"}. ${provenanceSentence(provenance(overview, row))}`;

/** The toolbar says which traced step the breakdown of the selected one comes from. */
const PROVENANCE = {
  traced: "Measured: traced step.",
  failure: "Measured at the failure.",
  inferred: "Peak measured; breakdown inferred.",
  "layer table": "Peak measured; weights and optimizer state from the layer table.",
} as const;

export function Provenance({ overview, row }: { overview: Overview; row: number }) {
  const store = useStore();
  const source = provenance(overview, row);
  const traced =
    source.kind === "layer table" || source.kind === "failure" ? null : source.snapshot.step;
  return (
    <p
      class={`provenance ${source.kind.replace(" ", "-")}`}
      data-testid="provenance"
      data-kind={source.kind}
    >
      <span class="said" title={provenanceSentence(source)}>
        {PROVENANCE[source.kind]}
      </span>
      {traced !== null && (
        <button
          type="button"
          class="timeline-link"
          aria-label={`Open step ${traced}`}
          title={`Show the timeline of step ${traced}`}
          onClick={() => store.choose({ view: "step", step: traced })}
        >
          Open
        </button>
      )}
    </p>
  );
}

function Breakdown({
  overview,
  row,
  selected,
  focus,
  pointed,
  hover,
  unit,
}: PanelProps & { unit: Unit }) {
  const store = useStore();
  const ofCategory = useCategoryRow(hover);
  const source = sourceOf(overview, row);
  const highest = useMemo(() => overview.bytes.map(maximum), [overview]);
  const resting = new Map(
    breakdown(selected.overview, selected.row).map(({ group, bytes }) => [groupKey(group), bytes]),
  );
  const rows = breakdown(overview, row).map(({ group, bytes, share }, index) => {
    const key = groupKey(group);
    return {
      name: key,
      highest: highest[index] ?? null,
      selected: resting.get(key) ?? null,
      label: groupLabel(group),
      hint: categoryMeaning(group.category),
      source,
      bytes,
      share,
      fill: fillOf(group.category, group.trainable, schemeOf(store)),
      focused: (pointed ?? focus.hovered) === key,
      ...ofCategory(key, group.category),
    };
  });
  return (
    <tbody>
      <FigureRows rows={rows.reverse()} whole={maximum(overview.peak_bytes)} unit={unit} />
    </tbody>
  );
}

const MORE = ["driver_process_bytes", "driver_used_bytes", "driver_total_bytes"] as const;

/**
 * The step at which the newest failure of the shown device happened, null if its run did not fail,
 * undefined if the step is unknown.
 */
function useFailedStep(): number | null | undefined {
  const store = useStore();
  const run = store.primary.value;
  const answered =
    run && store.fetched.answers.read(run, store.device.value, store.phase.value).value;
  const failed = answered?.answers.find(
    ({ name, status }) => name === "fits" && status === "failed",
  );
  return failed ? (failed.evidence.step ?? undefined) : null;
}

/**
 * The headroom of a step. For a run that ran out of memory it names the step, because another step
 * had none.
 */
function Headroom({
  step,
  bytes,
  unit,
}: {
  step: number | null;
  bytes: number | null;
  unit: Unit;
}) {
  const failed = useFailedStep();
  const when = `step ${step ?? "?"}`;
  if (failed === null) return <WordFigure word="headroom" when={when} bytes={bytes} unit={unit} />;
  const other =
    failed === undefined ? "an allocation of this run failed" : `step ${failed} ran out of memory`;
  return (
    <WordFigure
      word="headroom"
      label={`headroom at ${when}`}
      when={`${when}; ${other}`}
      bytes={bytes}
      unit={unit}
    />
  );
}

export function Totals({ overview, row, unit }: { overview: Overview; row: number; unit: Unit }) {
  const peak = at(overview.peak_bytes, row);
  const capacity = at(overview.capacity_bytes, row);
  const common = { unit, when: `step ${at(overview.step, row) ?? "?"}` };
  const headroom = peak === null || capacity === null ? null : capacity - peak;
  const ended = { ...common, when: `when ${common.when} ended` };
  return (
    <tbody class="totals">
      <WordFigure
        {...common}
        strong
        word="peak_bytes"
        bytes={peak}
        share={shareOf(peak, capacity)}
      />
      <WordFigure
        {...ended}
        word="in_use_bytes"
        label="in use at step end"
        bytes={at(overview.in_use_bytes, row)}
      />
      <WordFigure {...common} word="capacity_bytes" bytes={capacity} />
      <Headroom step={at(overview.step, row)} bytes={headroom} unit={unit} />
      {/* Without a driver, the device's memory is the machine's. */}
      {MORE.filter((name) =>
        [name, MORE[1]].every((column) => overview[column].some((value) => !Number.isNaN(value))),
      ).map((name) => (
        <WordFigure key={name} {...common} word={name} bytes={at(overview[name], row)} />
      ))}
    </tbody>
  );
}

/**
 * One unit for the whole panel: that of the highest figure of the run, so that it does not change
 * from step to step.
 */
export const panelUnit = (overview: Overview): Unit => unitOf(maximum(overview.peak_bytes));

export function StepPanel(props: PanelProps) {
  const { overview, row } = props;
  const unit = panelUnit(overview);
  return (
    <aside class="panel" aria-label="Figures of one step">
      <PanelHead overview={overview} row={row} unit={unit} />
      <Provenance overview={overview} row={row} />
      <FigureTable testid="breakdown">
        <Breakdown {...props} unit={unit} />
        <Totals overview={overview} row={row} unit={unit} />
      </FigureTable>
      {props.children}
      {/* Of a failed step the post-mortem has them. */}
      {provenance(props.selected.overview, props.selected.row).kind !== "failure" && (
        <LargestLayers overview={overview} row={row} selected={props.selected} unit={unit} />
      )}
    </aside>
  );
}

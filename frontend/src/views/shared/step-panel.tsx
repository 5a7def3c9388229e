/**
 * The figures of one step. The rows are always the same, so the panel does not move with the
 * cursor.
 */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { unitOf, formatDuration, formatWallTime, shareOf, type Unit } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { categoryMeaning, groupKey, groupLabel } from "../../model/categories";
import {
  at,
  breakdown,
  provenance,
  provenanceSentence,
  type Overview,
  isKnown,
} from "../../model/overview";
import { fillOf } from "../../theme/palette";
import { useStore, useCategoryRow } from "./context";
import { Choose } from "./controls";
import { FigureRows, FigureTable, Panel, WordFigure } from "./figures";
import { startOf, type OverviewRow } from "./frame";
import { LargestLayers } from "./largest-layers";

interface FiguresProps extends OverviewRow {
  unit: Unit;
  testid: string;
  /** Rows of the parts, and what stands below the table. */
  children: ComponentChildren;
  below?: ComponentChildren;
}

/** The figures of a step: where they come from, its parts, and its totals. */
export function StepFigures({ overview, row, unit, testid, children, below }: FiguresProps) {
  const store = useStore();
  const epoch = at(overview.epoch, row);
  const time = at(overview.wall_time, row);
  const since = startOf(store.whole.value.value ?? overview);
  const when =
    time === null ? "" : `${formatWallTime(time)}, ${formatDuration(time - since)} after start`;
  return (
    <Panel
      label="Figures of one step"
      step={at(overview.step, row)}
      unit={unit}
      about={epoch === null || overview.epochs.length < 2 ? "" : `epoch ${epoch}`}
      line={{ title: when }}
    >
      <Provenance overview={overview} row={row} />
      <FigureTable testid={testid}>
        {children}
        <Totals overview={overview} row={row} />
      </FigureTable>
      {below}
    </Panel>
  );
}

export const sourceOf = (overview: Overview, row: number): string =>
  `Step ${at(overview.step, row) ?? "?"}. ${provenanceSentence(provenance(overview, row))}`;

/** The toolbar says which traced step the breakdown of the selected one comes from. */
const PROVENANCE = {
  traced: "Measured",
  failure: "Measured at the failure",
  inferred: "Peak measured, breakdown inferred",
  "layer table": "Peak measured, weights and optimizer state from the layer table",
} as const;

function Provenance({ overview, row }: { overview: Overview; row: number }) {
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
        <Choose
          class="timeline-link"
          aria-label={`Open step ${traced}`}
          title={`Show the timeline of step ${traced}`}
          these={{ view: "step", step: traced }}
        >
          Open
        </Choose>
      )}
    </p>
  );
}

interface StepPanelProps extends OverviewRow {
  selected: OverviewRow;
  pointed: string | null;
  children?: ComponentChildren;
}

function Breakdown({ overview, row, selected, pointed }: StepPanelProps) {
  const ofRow = useCategoryRow();
  const source = sourceOf(overview, row);
  const highest = useMemo(() => overview.bytes.map(maximum), [overview]);
  const resting = new Map(
    breakdown(selected.overview, selected.row).map(({ group, bytes }) => [groupKey(group), bytes]),
  );
  const rows = breakdown(overview, row).map(({ group, bytes, share }, index) => {
    const key = groupKey(group);
    const events = ofRow(key, group.category);
    return {
      ...events,
      name: key,
      highest: highest[index] ?? null,
      selected: resting.get(key) ?? null,
      label: groupLabel(group),
      hint: categoryMeaning(group.category),
      source,
      bytes,
      share,
      fill: fillOf(group),
      focused: pointed === null ? events.focused : pointed === key,
    };
  });
  return (
    <tbody>
      <FigureRows rows={rows.reverse()} whole={maximum(overview.peak_bytes)} />
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
function Headroom({ step, bytes }: { step: number | null; bytes: number | null }) {
  const failed = useFailedStep();
  const when = `step ${step ?? "?"}`;
  if (failed === null) return <WordFigure word="headroom" when={when} bytes={bytes} />;
  const other =
    failed === undefined ? "an allocation of this run failed" : `step ${failed} ran out of memory`;
  return (
    <WordFigure
      word="headroom"
      label={`headroom at ${when}`}
      when={`${when}; ${other}`}
      bytes={bytes}
    />
  );
}

function Totals({ overview, row }: OverviewRow) {
  const peak = at(overview.peak_bytes, row);
  const capacity = at(overview.capacity_bytes, row);
  const when = `step ${at(overview.step, row) ?? "?"}`;
  const headroom = peak === null || capacity === null ? null : capacity - peak;
  return (
    <tbody class="totals">
      <WordFigure
        strong
        word="peak_bytes"
        when={when}
        bytes={peak}
        share={shareOf(peak, capacity)}
      />
      <WordFigure
        word="in_use_bytes"
        when={`when ${when} ended`}
        label="in use at step end"
        bytes={at(overview.in_use_bytes, row)}
      />
      <WordFigure word="capacity_bytes" when={when} bytes={capacity} />
      <Headroom step={at(overview.step, row)} bytes={headroom} />
      {/* Without a driver, the device's memory is the machine's. */}
      {MORE.filter((name) => [name, MORE[1]].every((column) => isKnown(overview[column]))).map(
        (name) => (
          <WordFigure key={name} when={when} word={name} bytes={at(overview[name], row)} />
        ),
      )}
    </tbody>
  );
}

/**
 * One unit for the whole panel: that of the highest figure of the run, so that it does not change
 * from step to step.
 */
export const panelUnit = (overview: Overview): Unit => unitOf(maximum(overview.peak_bytes));

export function StepPanel(props: StepPanelProps) {
  const { overview, row, selected, children } = props;
  // Of a failed step the post-mortem has them.
  const isFailure = provenance(selected.overview, selected.row).kind === "failure";
  return (
    <StepFigures
      overview={overview}
      row={row}
      unit={panelUnit(overview)}
      testid="breakdown"
      below={
        <>
          {children}
          {!isFailure && <LargestLayers overview={overview} row={row} />}
        </>
      }
    >
      <Breakdown {...props} />
    </StepFigures>
  );
}

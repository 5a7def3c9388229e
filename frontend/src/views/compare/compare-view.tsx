/** Compares A and B: two runs, or two steps of one run. */

import { useMemo } from "preact/hooks";

import { byteRange, cellEdges, xValues, type Range } from "../../charts/axis";
import { stepPainter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter, ruleAcross } from "../../charts/rules";
import { unbroken, type Table, tableOf } from "../../lib/bytes";
import { lowerBound } from "../../lib/search";
import { changeBetween } from "../../model/answer";
import { groupDeltas, layerDeltas, differenceSentence, type LayerDelta } from "../../model/compare";
import type { LayerFigures } from "../../model/layers";
import {
  at,
  breakdown,
  provenance,
  rowSentence,
  snapshotAt,
  type Overview,
} from "../../model/overview";
import { counterpartRow, defaultRow } from "../../model/step-selection";
import type { Choices } from "../../state/address";
import { inks, runColour, dark } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { useStore, useFetched, useFocus, useChoices } from "../shared/context";
import { Choose } from "../shared/controls";
import { useExport } from "../shared/export";
import { useStepsChart, highest, lastKnown, placesOf, rangeOf, startOf } from "../shared/frame";
import { useLayerFigures } from "../shared/largest-layers";
import { NoticeList } from "../shared/states";
import { Categories, CompareTable } from "./compare-table";
import { Waterfall, WaterfallDrawing } from "./waterfall";
import type { RunInfo } from "../../schema";

function Causes({ pair: [a, b] }: { pair: Pair }) {
  const store = useStore();
  const isOneRun =
    a.run === b.run &&
    a.overview.device === b.overview.device &&
    a.overview.phase === b.overview.phase;
  const { value } = useFetched(
    store.fetched.answers,
    isOneRun ? [a.run, a.overview.device, a.overview.phase] : null,
  );
  const change = changeBetween(value?.answers ?? null, stepOfSide(a), stepOfSide(b));
  if (change === null) return null;
  return (
    // The answers above have its sentence.
    <NoticeList sentences={change.details.map(unbroken)} testid="causes" />
  );
}

interface ComparedSide {
  letter: "A" | "B";
  run: RunInfo;
  overview: Overview;
  row: number;
  colour: string;
  step: number | null;
}

type Pair = readonly [ComparedSide, ComparedSide];

const stepOfSide = ({ overview, row }: Pick<ComparedSide, "overview" | "row">): number | null =>
  at(overview.step, row);
const earlierSlots = ({ overview, row }: ComparedSide): number =>
  snapshotAt(overview, row)?.earlier_slots_bytes ?? 0;
const peakOfSide = ({ overview, row }: ComparedSide): number | null => at(overview.peak_bytes, row);

/** The choices that set a side's run. */
const chooseRun = (letter: "A" | "B", run: string): Partial<Choices> =>
  letter === "A" ? { primary: run, step: null, session: null } : { other: run, otherStep: null };

function sourceText({ overview, row }: ComparedSide): string {
  const source = provenance(overview, row);
  if (source.kind === "layer table") return "";
  if (source.kind === "failure") return "at the failed allocation";
  return source.kind === "traced" ? "" : `breakdown from step ${source.snapshot.step}`;
}

interface SideProps {
  side: ComparedSide;
  /** The step of A that stays when one is chosen for B. */
  stepOfA: number | null;
  device: boolean;
  phase: boolean;
}

function Side({ side, stepOfA, device, phase }: SideProps) {
  const store = useStore();
  const { letter, run, overview, colour, step } = side;
  const shown = stepOfSide(side);
  return (
    <div class="side">
      <span class="letter" style={{ borderColor: colour }}>
        {letter}
      </span>
      <select
        aria-label={`Run ${letter}`}
        title={run.run}
        value={run.run}
        onChange={(event) => store.choose(chooseRun(letter, event.currentTarget.value))}
      >
        {store.runs.value
          .filter(({ devices }) => devices.length > 0)
          .map(({ run: name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
      </select>
      {letter === "B" && (
        <label>
          <input
            type="number"
            min="0"
            placeholder={String(shown ?? "")}
            aria-label="Step of B; empty for the default step"
            value={step ?? ""}
            onChange={({ currentTarget: { value } }) =>
              store.choose(
                value === "" ? { otherStep: null } : { step: stepOfA, otherStep: Number(value) },
              )
            }
          />
        </label>
      )}
      <span class="small" data-testid={`side-${letter}`} data-step={shown ?? ""}>
        {device && `${overview.device}, `}
        {phase && `${overview.phase}, `}
        {sourceText(side)}
      </span>
    </div>
  );
}

function Sides({ pair }: { pair: Pair }) {
  const [a, b] = pair;
  const swap = {
    primary: b.run.run,
    other: a.run.run,
    ...(a.run === b.run
      ? { step: stepOfSide(b), otherStep: stepOfSide(a) }
      : { step: b.step, otherStep: a.step }),
    session: null,
  };
  return (
    <div class="sides">
      {pair.map((side) => (
        <Side
          key={side.letter}
          side={side}
          stepOfA={a.run === b.run ? stepOfSide(a) : a.step}
          device={a.overview.device !== b.overview.device}
          phase={a.overview.phase !== b.overview.phase}
        />
      ))}
      <Choose class="quiet" aria-label="Swap A and B" these={swap}>
        ⇄
      </Choose>
    </div>
  );
}

interface Curve extends Pick<ComparedSide, "overview" | "colour" | "row"> {
  dash?: readonly number[];
}

export function compareSpec(a: Curve, b: Curve, choices: Choices): PlotSpec {
  const ink = inks();
  const places = placesOf(a.overview, startOf(a.overview), choices);
  const others = xValues(choices.axis, b.overview.step, b.overview.wall_time, startOf(b.overview));
  const edges = cellEdges(others);
  const whole = rangeOf(edges);
  const range: Range =
    choices.zoom === null
      ? [Math.min(places.range[0], whole[0]), Math.max(places.range[1], whole[1])]
      : places.range;
  const peak = Math.max(
    highest(a.overview.peak_bytes, places.x, range),
    highest(b.overview.peak_bytes, others, range),
  );
  const capacity = lastKnown(a.overview.capacity_bytes);
  const { max, capacityInside } = byteRange(peak, capacity);
  const rule = (x: Float64Array, row: number, colour: string) =>
    x[row] === undefined ? [] : [ruleAcross(x[row], colour, [2, 3])];
  return {
    x: places.x,
    xKind: choices.axis,
    range,
    yMax: max,
    inks: inks(),
    painters: [
      ...rule(others, b.row, b.colour),
      ...rule(places.x, a.row, a.colour),
      stepPainter(edges, b.overview.peak_bytes, { colour: b.colour, width: 1.75, dash: b.dash }),
      stepPainter(places.edges, a.overview.peak_bytes, {
        colour: a.colour,
        width: 1.75,
        dash: a.dash,
      }),
      ...capacityPainter(capacity, capacityInside, ink),
    ],
  };
}

/**
 * The row of a step, of the highest peak for null; the last row before it where the step is past
 * the end.
 */
export function rowFor(overview: Overview, step: number | null, peak: number): number {
  if (step === null) return peak;
  return Math.min(lowerBound(overview.step, step), overview.rows - 1);
}

function useLayers({ run, overview, row }: ComparedSide): readonly LayerFigures[] | null {
  const { ready, layers } = useLayerFigures(run, overview.device, overview, row);
  return ready ? layers : null;
}

const deltaTable = (layers: readonly LayerDelta[]): Table =>
  tableOf(layers, {
    layer_a: ({ from }) => from?.path ?? null,
    layer_b: ({ to }) => to?.path ?? null,
    matched: ({ match }) => match,
    bytes_a: ({ from }) => from?.total ?? null,
    bytes_b: ({ to }) => to?.total ?? null,
    delta_bytes: ({ delta }) => delta,
  });

function Curves({ pair }: { pair: Pair }) {
  const choices = useChoices();
  const [a, b] = pair;
  const same = a.run === b.run;
  const dash = same ? [4, 3] : [];
  const spec = useMemo(
    () => compareSpec({ ...a }, { ...b, dash }, choices),
    [
      a.overview,
      b.overview,
      a.row,
      b.row,
      a.colour,
      b.colour,
      same,
      choices.axis,
      choices.zoom,
      dark.value,
    ],
  );
  const chart = useStepsChart(a.overview.step, spec.x, [a.run, b.run]);
  return (
    <Chart
      height="compare"
      label={`Measured peaks of ${a.run.run} and ${b.run.run} over steps.`}
      spec={spec}
      {...chart}
      pin={null}
      describe={(index) => rowSentence(a.overview, index)}
    />
  );
}

function usePair({ a, b, run, other }: CompareProps): Pair {
  const store = useStore();
  const { step, otherStep } = useChoices();
  const colour = (name: string): string => runColour(store.colours.value.get(name) ?? 0);
  const shown = store.shownStep.value ?? { overview: a, row: defaultRow(a) };
  const selected = { run, overview: shown.overview, row: shown.row, colour: colour(run.run), step };
  const counterpart = counterpartRow(stepOfSide(selected), b, run.run === other.run);
  const second = {
    run: other,
    overview: b,
    row: rowFor(b, otherStep, counterpart),
    colour: colour(other.run),
    step: otherStep,
  };
  // Of one run the earlier step is A, while only one of them is chosen.
  const [earlier] = store.defaultPair.value ?? [];
  const isLater = earlier !== undefined && stepOfSide(selected) !== earlier;
  const [first, last] = isLater ? [second, selected] : [selected, second];
  return [
    { letter: "A", ...first },
    { letter: "B", ...last },
  ];
}

const SAVED_WIDTH = 1100;

interface CompareProps {
  a: Overview;
  b: Overview;
  run: RunInfo;
  other: RunInfo;
}

export function CompareView(props: CompareProps) {
  const pair = usePair(props);
  const [a, b] = pair;
  const focus = useFocus();
  const deltas = useMemo(
    () =>
      groupDeltas(breakdown(a.overview, a.row), breakdown(b.overview, b.row), [
        earlierSlots(a),
        earlierSlots(b),
      ]),
    [a.overview, b.overview, a.row, b.row],
  );
  const [ofA, ofB] = [useLayers(a), useLayers(b)];
  // Time runs forward: of an earlier B nothing "became" frozen.
  const isForward = a.run === b.run && (stepOfSide(a) ?? 0) <= (stepOfSide(b) ?? 0);
  const layers = useMemo(() => (ofA && ofB ? layerDeltas(ofA, ofB) : null), [ofA, ofB]);
  const named = (side: ComparedSide) => ({
    name: `${side.letter}: ${side.run.run}, step ${stepOfSide(side) ?? "?"}`,
    short: a.run === b.run ? `step ${stepOfSide(side) ?? "?"}` : side.run.run,
    letter: side.letter,
    colour: side.colour,
  });
  const drawn = { deltas, from: named(a), to: named(b), focus };
  useExport({
    table: () => deltaTable(layers ?? []),
    legend: () =>
      pair.map((side) => ({
        label: named(side).name,
        fill: { colour: side.colour, pattern: "plain" },
      })),
    drawing: () => <WaterfallDrawing {...drawn} width={SAVED_WIDTH} />,
  });
  return (
    <div class="compare">
      <Sides pair={pair} />
      <div class="body">
        <div class="picture">
          <h2 class="verdict" data-testid="difference">
            {unbroken(differenceSentence(deltas, peakOfSide(a), peakOfSide(b), isForward))}
          </h2>
          <Waterfall {...drawn} />
          <Curves pair={pair} />
        </div>
        <div class="beside">
          <Causes pair={pair} />
          {/* Two steps of a run differ in what the waterfall shows. */}
          <details class="known" open={a.run !== b.run}>
            <summary>A and B</summary>
            <Categories deltas={deltas} a={peakOfSide(a)} b={peakOfSide(b)} />
          </details>
        </div>
      </div>
      {layers && <CompareTable deltas={layers} />}
    </div>
  );
}

/** Compares A and B: two runs, or two steps of one run. */

import { useMemo } from "preact/hooks";

import { unbroken, type Table } from "../../lib/bytes";
import { groupDeltas, layerDeltas, differenceSentence, type LayerDelta } from "../../model/compare";
import { layerFigures, type LayerFigures } from "../../model/layers";
import { at, breakdown, provenance, rowSentence, type Overview } from "../../model/overview";
import type { RunInfo } from "../../model/run";
import { counterpartRow, defaultRow } from "../../model/step-selection";
import { runColour } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { useFetched } from "../shared/fetched";
import { useFocus } from "../shared/focus";
import { useStepsChart } from "../shared/steps-chart";
import { Categories } from "./compare-categories";
import { Causes } from "./compare-causes";
import { Sides, peakOfSide, type ComparedSide, type Pair } from "./compare-sides";
import { compareSpec, rowFor, type Curve } from "./compare-spec";
import { CompareTable } from "./compare-table";
import { Waterfall, WaterfallDrawing } from "./waterfall";

/** Bytes of each layer, from the trace that the step's breakdown comes from and the layer table of that step. */
function useLayers({ run, overview, row }: ComparedSide): readonly LayerFigures[] | null {
  const store = useStore();
  const source = provenance(overview, row);
  const ref = source.kind === "layer table" ? null : source.snapshot;
  const step = ref?.step ?? at(overview.step, row) ?? 0;
  const table = useFetched(store.fetched.layers, [run, overview.device, step]);
  const ofRef = useFetched(store.fetched.snapshots, ref && [run, overview.device, ref]);
  const snapshot = ref && ofRef;
  const ready = (table.value ?? table.error) !== null && (snapshot === null || (snapshot.value ?? snapshot.error) !== null);
  const ledger = snapshot?.value?.ledger ?? null;
  return useMemo(() => (ready ? layerFigures(table.value, ledger) : null), [ready, table.value, ledger]);
}

function deltaTable(layers: readonly LayerDelta[]): Table {
  return {
    columns: ["layer_a", "layer_b", "matched", "bytes_a", "bytes_b", "delta_bytes"],
    rows: layers.map(({ from, to, match, delta }) => [
      from?.path ?? null,
      to?.path ?? null,
      match,
      from?.total ?? null,
      to?.total ?? null,
      delta,
    ]),
  };
}

function Curves({ pair }: { pair: Pair }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [a, b] = pair;
  const same = a.run === b.run;
  const spec = useMemo(() => {
    const curve = ({ overview, colour, row }: ComparedSide, dash: readonly number[]): Curve => ({ overview, colour, dash, row });
    return compareSpec(curve(a, []), curve(b, same ? [4, 3] : []), choices, scheme);
  }, [a.overview, b.overview, a.row, b.row, a.colour, b.colour, same, choices.axis, choices.zoom, scheme]);
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

/** A and B as chosen. */
function usePair({ a, b, run, other }: CompareProps): Pair {
  const store = useStore();
  const scheme = schemeOf(store);
  const { step, otherStep } = store.choices.value;
  const { overview, row } = store.shownStep.value ?? { overview: a, row: defaultRow(a) };
  const ofA = { overview, row };
  const counterpart = counterpartRow(at(overview.step, row), b, run.run === other.run);
  const colour = (name: string): string => runColour(store.colours.value.get(name) ?? 0, scheme);
  return [
    { letter: "A", run, ...ofA, colour: colour(run.run), step },
    { letter: "B", run: other, overview: b, row: rowFor(b, otherStep, counterpart), colour: colour(other.run), step: otherStep },
  ];
}

/** Width of a saved waterfall in pixels. */
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
  const { focus, hover } = useFocus();
  const deltas = useMemo(
    () => groupDeltas(breakdown(a.overview, a.row), breakdown(b.overview, b.row)),
    [a.overview, b.overview, a.row, b.row],
  );
  const [ofA, ofB] = [useLayers(a), useLayers(b)];
  const layers = useMemo(() => (ofA && ofB ? layerDeltas(ofA, ofB) : null), [ofA, ofB]);
  const named = ({ letter, run, colour }: ComparedSide) => ({ name: `${letter}: ${run.run}`, letter, colour });
  const drawn = { deltas, from: named(a), to: named(b), focus, scheme: schemeOf(useStore()) };
  useExport({
    table: () => deltaTable(layers ?? []),
    legend: () => pair.map((side) => ({ label: named(side).name, fill: { colour: side.colour, pattern: "plain" } })),
    drawing: () => <WaterfallDrawing {...drawn} width={SAVED_WIDTH} />,
  });
  return (
    <div class="compare">
      <Sides pair={pair} />
      <div class="body">
        <div class="picture">
          <h2 class="verdict" data-testid="difference">
            {unbroken(differenceSentence(deltas, peakOfSide(a), peakOfSide(b), { sameRun: a.run === b.run, pictured: true }))}
          </h2>
          <Causes pair={pair} />
          <Waterfall {...drawn} />
          <Curves pair={pair} />
        </div>
        <Categories deltas={deltas} a={peakOfSide(a)} b={peakOfSide(b)} hover={hover} />
      </div>
      {layers && <CompareTable deltas={layers} />}
    </div>
  );
}

/** Memory over steps, stacked by category, under the capacity line. */

import { useMemo, useRef, useState } from "preact/hooks";

import { withGaps, xValues, type Range } from "../../charts/axis";
import { bandAt } from "../../charts/layout";
import { diamondsPainter, stepPainter, type Painter } from "../../charts/paint";
import { outlinedPainter, trendPainter } from "../../charts/rules";
import { formatBytes, formatCount, unbroken } from "../../lib/bytes";
import {
  frozenFindings,
  growthFindings,
  isSteady,
  shortFinding,
  verdictWords,
  whenSentence,
  type Finding,
} from "../../model/answer";
import { groupKey, groupLabel, WORDS } from "../../model/categories";
import { at, rowOfStep, type Overview } from "../../model/overview";
import { trains } from "../../model/run";
import type { Choices } from "../../state/address";
import { fillOf, inks, dark, runColour, runDash } from "../../theme/palette";
import { Chart } from "../shared/chart";
import {
  useStore,
  useFocus,
  choicesFor,
  useFetched,
  isMuted,
  type Focus,
  useChoices,
} from "../shared/context";
import { StackLegend, Choose } from "../shared/controls";
import { overviewFile, useExport } from "../shared/export";
import { Figure, FigureTable } from "../shared/figures";
import { PossibleFixes, Requester } from "../shared/fixes";
import {
  edgesOf,
  failedRequests,
  highest,
  placesOf,
  rangeOf,
  stackedPicture,
  startOf,
  useOverviewChart,
  validationPoints,
  type Picture,
  type Places,
} from "../shared/frame";
import { TracedDetails } from "../shared/largest-layers";
import { Sentence } from "../shared/states";
import { StepPanel } from "../shared/step-panel";
import type { Answer, AnswersAnswer, LargestLayer, AnswerName, RunInfo } from "../../schema";

interface OtherRun {
  overview: Overview;
  colour: string;
  dash: readonly number[];
}

function otherLines(
  others: readonly OtherRun[],
  choices: Choices,
): { painters: Painter[]; ranges: Range[]; peaks: (range: Range) => number } {
  const lines = others.map(({ overview, colour, dash }) => {
    const x = xValues(choices.axis, overview.step, overview.wall_time, startOf(overview));
    const edges = edgesOf(x, choices.axis, overview.phase, overview.epochs[0]?.first_step ?? null);
    return {
      overview,
      x,
      edges,
      painter: stepPainter(edges, overview.peak_bytes, { colour, width: 1.75, dash }),
    };
  });
  return {
    painters: lines.map(({ painter }) => painter),
    ranges: lines.filter(({ x }) => x.length > 0).map(({ edges }) => rangeOf(edges)),
    peaks: (range) =>
      Math.max(0, ...lines.map(({ overview, x }) => highest(overview.peak_bytes, x, range))),
  };
}

/**
 * From the last peak of a growing series on to the capacity, as the server says; null if it is far
 * or another series grows.
 */
export function trendOf({ device, phase }: Overview, growing: Answer | null) {
  const {
    last_step: step,
    last_peak_bytes: peak,
    capacity_step: full,
    capacity_bytes: capacity,
  } = growing?.figures ?? {};
  if (step === undefined || peak === undefined || full === undefined || capacity === undefined)
    return null;
  if (growing?.device !== device || growing.evidence.phase !== phase) return null;
  return {
    from: [step, peak],
    to: [full, capacity],
    label: `full by step ${formatCount(full)}`,
  } as const;
}

const union = (ranges: readonly Range[]): Range => [
  Math.min(...ranges.map(([from]) => from)),
  Math.max(...ranges.map(([, to]) => to)),
];

export function overviewPicture(
  overview: Overview,
  start: number,
  others: readonly OtherRun[],
  choices: Choices,
  focus: Focus,
  ended = false,
  growing: Answer | null = null,
): Picture {
  const ink = inks();
  const alone = placesOf(overview, start, choices);
  const lines = otherLines(others, choices);
  const trend = choices.axis === "step" ? trendOf(overview, growing) : null;
  const seen: Range[] =
    trend === null ? [] : [[alone.range[0], (growing?.evidence.zoom?.[1] ?? 0) + 0.5]];
  const range =
    choices.zoom === null ? union([alone.range, ...seen, ...lines.ranges]) : alone.range;
  const places: Places = { ...alone, range };
  const validations = validationPoints(places);
  const requests = failedRequests(places);
  const tops = [
    ...validations.map(({ y }) => y),
    ...requests.map(({ from, to, high }) => (from < range[1] && to > range[0] ? high : 0)),
    ...(trend ? [trend.to[1]] : []),
  ];
  const end = { colour: ink.line, width: 1.25, dash: [2, 3] };
  const stack = {
    columns: overview.bytes,
    fills: overview.groups.map((group) => ({
      ...fillOf(group),
      muted: isMuted(focus, [groupKey(group)], group.category),
    })),
    peak: Math.max(highest(overview.peak_bytes, places.x, range), lines.peaks(range), ...tops),
    over: [
      ...lines.painters,
      ...(ended
        ? [stepPainter(...withGaps(places.edges, overview.in_use_bytes, places.gaps), end)]
        : []),
      ...requests.map((request) => outlinedPainter(request, ink, "outline")),
      ...(trend ? [trendPainter(trend.from, trend.to, trend.label, ink)] : []),
    ],
    lanes: [
      diamondsPainter(validations, ink.text, ink.background),
      ...requests.map((request) => outlinedPainter(request, ink, "label")),
    ],
  };
  return stackedPicture(places, stack, choices.axis);
}

const goal = ({ step }: Finding): string => (step === null ? "Show the view" : `Show step ${step}`);

function Findings({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const run = store.primary.value;
  const training = run === null || trains(run);
  const frozen = useMemo(() => (training ? frozenFindings(whole) : []), [whole, training]);
  // The one that is summarized above the chart is not repeated.
  const growing = useMemo(
    () =>
      run
        ? growthFindings(run, overview.device).filter(
            (finding) => !isSteady(finding) || run.status !== "growing",
          )
        : [],
    [run, overview.device],
  );
  const all = [...growing, ...frozen];
  if (all.length === 0) return null;
  const show = ({ step, view, zoom }: Finding): void =>
    store.choose({ view, step, ...(zoom === null ? {} : { zoom }) });
  return (
    <ul class="findings" aria-label="Findings" data-testid="findings">
      {all.map((finding) => {
        const [head, more] = shortFinding(finding.sentence, overview.device);
        return (
          <li key={finding.sentence} class={finding.kind}>
            <button type="button" title={goal(finding)} onClick={() => show(finding)}>
              <Sentence of={unbroken(head)} />
            </button>
            {more !== "" && (
              <details class="known">
                <summary>More</summary>
                <p>
                  <Sentence of={unbroken(more)} />
                </p>
              </details>
            )}
          </li>
        );
      })}
    </ul>
  );
}

type NamedRun = OtherRun & { name: string };

function useSame(list: readonly NamedRun[]): readonly NamedRun[] {
  const kept = useRef(list);
  const same =
    list.length === kept.current.length &&
    list.every(({ name, overview, colour }, index) => {
      const before = kept.current[index];
      return before?.name === name && before.overview === overview && before.colour === colour;
    });
  if (!same) kept.current = list;
  return kept.current;
}

function useOthers(): readonly NamedRun[] {
  const store = useStore();
  const primary = store.primary.value?.run;
  const others = store.selected.value
    .filter(({ run }) => run !== primary)
    .flatMap((run) => {
      const overview = store.overviewOf(run).value;
      const index = store.colours.value.get(run.run) ?? 0;
      return overview && overview.rows > 0
        ? [{ name: run.run, overview, colour: runColour(index), dash: runDash(index) }]
        : [];
    });
  return useSame(others);
}

function OtherRuns({
  others,
  overview,
  row,
}: {
  others: readonly NamedRun[];
  overview: Overview;
  row: number;
}) {
  if (others.length === 0) return null;
  const step = at(overview.step, row) ?? 0;
  return (
    <section class="others">
      <h3>Measured peak of other runs</h3>
      <FigureTable>
        <tbody>
          {others.map(({ name, overview: other, colour }) => {
            const [first, last] = [other.step[0] ?? 0, other.step[other.rows - 1] ?? 0];
            const bytes =
              step >= first && step <= last ? at(other.peak_bytes, rowOfStep(other, step)) : null;
            return (
              <Figure
                key={name}
                name={`run:${name}`}
                label={other.phase === overview.phase ? name : `${name}, ${other.phase}`}
                hint={`${WORDS.peak_bytes.meaning}, ${name} on ${other.device}, ${other.phase}`}
                source={`${WORDS.peak_bytes.source}, step ${at(other.step, rowOfStep(other, step)) ?? "?"}`}
                bytes={bytes}
                fill={{ colour, pattern: "plain" }}
              />
            );
          })}
        </tbody>
      </FigureTable>
    </section>
  );
}

export function OverviewView({ overview }: { overview: Overview }) {
  const store = useStore();
  const choices = useChoices();
  const focus = useFocus();
  const [pointed, point] = useState<string | null>(null);
  const others = useOthers();
  const growing = (store.primary.value?.findings.length ?? 0) > 0;
  const grows = answerTo("growing", useAnswers().value);
  const start = startOf(store.whole.value.value ?? overview);
  const { spec, places, layout } = useMemo(
    () => overviewPicture(overview, start, others, choices, focus, growing, grows),
    [overview, start, others, choices.axis, choices.zoom, dark.value, focus, growing, grows],
  );
  const { chart, shown, selected } = useOverviewChart(overview, places);
  useExport({
    table: () => overviewFile(overview),
    legend: () => [
      ...overview.groups.map((group) => ({ label: groupLabel(group), fill: fillOf(group) })),
      ...others.map(({ name, colour }) => ({
        label: `peak of ${name}`,
        fill: { colour, pattern: "plain" as const },
      })),
    ],
  });
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Memory of ${overview.run} on ${overview.device} by category over steps. Peak ${formatBytes(at(shown.overview.peak_bytes, shown.row) ?? 0)}.`}
          spec={spec}
          {...chart}
          onCursor={(index, value) => {
            chart.onCursor(index);
            const group =
              index === null || value === null
                ? undefined
                : overview.groups[bandAt(layout, index, value)];
            point(group ? groupKey(group) : null);
          }}
        />
        <StackLegend overview={overview} ended={growing} />
      </div>
      <div class="beside">
        <StepPanel {...shown} selected={selected} pointed={pointed}>
          <OtherRuns others={others} {...shown} />
        </StepPanel>
        <Findings overview={overview} />
        {/* Last, because it arrives later. */}
        <TracedDetails {...selected} />
      </div>
    </div>
  );
}

/** The layer, or else the category, that held most when the request failed. */
function Culprit({ of: { sentence, layer, step, phase } }: { of: LargestLayer }) {
  const at = { ...(step !== null && { step }), ...(phase !== null && { phase }) };
  return (
    <p data-testid="largest-layer">
      <Choose class="link" title="Show all layers" these={{ view: "layers", layer, ...at }}>
        {sentence}
      </Choose>
    </p>
  );
}

/** Keeps the place of a diagnosis, so that what stands below does not move when it arrives. */
const Pending = ({ of }: { of: "failed" | "growing" }) => <div class={`diagnosis ${of}`} />;

interface PostMortemProps {
  run: RunInfo;
  index: number;
  largest: LargestLayer | null;
}

function PostMortem({ run, index, largest }: PostMortemProps) {
  const store = useStore();
  const { value, loading } = store.ooms.value;
  const oom = value?.[index];
  if (!oom) return loading ? <Pending of="failed" /> : null;
  return (
    <section class="diagnosis failed" aria-label="Post-mortem" data-testid="diagnosis">
      <h2>
        {whenSentence(oom, run.devices.length > 1)} <Requester oom={oom} />
      </h2>
      {largest?.at_failure && <Culprit of={largest} />}
      <p>
        {/* The answers above have the figures. */}
        <Choose class="link" title="Open the post-mortem" these={{ view: "oom", oom: index }}>
          {verdictWords(oom.verdict)}
        </Choose>
      </p>
      <PossibleFixes run={run} oom={oom} index={index} />
    </section>
  );
}

function Growth({ run, answer }: { run: RunInfo; answer: Answer }) {
  if (answer.details.length === 0) return null;
  return (
    <section class="diagnosis growing" aria-label="Growth" data-testid="diagnosis">
      <Choose these={choicesFor(answer.evidence, run)}>
        <Sentence of={unbroken(answer.details.join(" "))} />
      </Choose>
    </section>
  );
}

function useAnswers() {
  const store = useStore();
  const [run, device] = [store.primary.value, store.device.value];
  return useFetched(
    store.fetched.answers,
    run === null || device === null ? null : [run, device, store.phase.value],
  );
}

const answerTo = (question: AnswerName, found: AnswersAnswer | null): Answer | null =>
  found?.answers.find(({ name }) => name === question) ?? null;

export function Diagnosis({ run }: { run: RunInfo }) {
  const { value: answers, loading } = useAnswers();
  // The server knows which failure counts: that of its answer to "Fits?".
  const index = answerTo("fits", answers)?.evidence.oom ?? null;
  const growing = answerTo("growing", answers);
  if (run.ooms > 0 && index !== null)
    return <PostMortem run={run} index={index} largest={answers?.largest_layer ?? null} />;
  if (answers === null && loading && (run.ooms > 0 || run.status === "growing"))
    return <Pending of={run.ooms > 0 ? "failed" : "growing"} />;
  return run.status === "growing" && growing ? <Growth run={run} answer={growing} /> : null;
}

/** Memory over steps, stacked by category, under the capacity line. */

import { useMemo, useRef, useState } from "preact/hooks";

import { bandAt } from "../../charts/layout";
import { formatBytes, unbroken } from "../../lib/bytes";
import { frozenFindings, growthFindings, isSteady, type Finding } from "../../model/answer";
import { groupKey, groupLabel } from "../../model/categories";
import { at, rowOfStep, type Overview } from "../../model/overview";
import { trains } from "../../model/run";
import { WORDS } from "../../model/words";
import { fillOf, runColour, runDash } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { overviewFile, useExport } from "../shared/export";
import { Figure, FigureTable } from "../shared/figures";
import { useFocus } from "../shared/focus";
import { startOf } from "../shared/frame";
import { StackLegend } from "../shared/legend";
import { Sentence } from "../shared/states";
import { StepPanel, panelUnit } from "../shared/step-panel";
import { useOverviewChart } from "../shared/steps-chart";
import { overviewPicture, type OtherRun } from "./overview-spec";

const goal = ({ step }: Finding): string => (step === null ? "Show the view" : `Show step ${step}`);

/** Findings below the chart; each links to the view and the step that show it. */
function Findings({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const run = store.primary.value;
  const training = run === null || trains(run);
  const frozen = useMemo(() => (training ? frozenFindings(whole) : []), [whole, training]);
  // The one that is summarized above the chart is not repeated.
  const growing = useMemo(
    () => (run ? growthFindings(run, overview.device).filter((finding) => !isSteady(finding) || run.status !== "growing") : []),
    [run, overview.device],
  );
  const all = [...growing, ...frozen];
  if (all.length === 0) return null;
  const show = ({ step, view, zoom }: Finding): void => store.choose({ view, step, ...(zoom === null ? {} : { zoom }) });
  return (
    <ul class="findings" aria-label="Findings" data-testid="findings">
      {all.map((finding) => (
        <li key={finding.sentence} class={finding.kind}>
          <button type="button" title={goal(finding)} onClick={() => show(finding)}>
            <Sentence of={unbroken(finding.sentence)} />
          </button>
        </li>
      ))}
    </ul>
  );
}

type NamedRun = OtherRun & { name: string };

/** The same list while its members are the same, so that the chart is not rebuilt. */
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

/** Overviews of the other checked runs that have arrived, with their colours. */
function useOthers(): readonly NamedRun[] {
  const store = useStore();
  const scheme = schemeOf(store);
  const primary = store.primary.value?.run;
  const others = store.selected.value
    .filter(({ run }) => run !== primary)
    .flatMap((run) => {
      const overview = store.overviewOf(run).value;
      const index = store.colours.value.get(run.run) ?? 0;
      return overview && overview.rows > 0 ? [{ name: run.run, overview, colour: runColour(index, scheme), dash: runDash(index) }] : [];
    });
  return useSame(others);
}

function OtherRuns({ others, overview, row }: { others: readonly NamedRun[]; overview: Overview; row: number }) {
  if (others.length === 0) return null;
  const step = at(overview.step, row) ?? 0;
  return (
    <section class="others">
      <h3>Measured peak of other runs</h3>
      <FigureTable>
        <tbody>
          {others.map(({ name, overview: other, colour }) => {
            const [first, last] = [other.step[0] ?? 0, other.step[other.rows - 1] ?? 0];
            const bytes = step >= first && step <= last ? at(other.peak_bytes, rowOfStep(other, step)) : null;
            return (
              <Figure
                key={name}
                name={`run:${name}`}
                label={other.phase === overview.phase ? name : `${name}, ${other.phase}`}
                hint={`${WORDS.peak_bytes.meaning}, ${name} on ${other.device}, ${other.phase}`}
                source={`${WORDS.peak_bytes.source}, step ${at(other.step, rowOfStep(other, step)) ?? "?"}`}
                bytes={bytes}
                unit={panelUnit(overview)}
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
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const { focus, hover } = useFocus();
  const [pointed, point] = useState<string | null>(null);
  const others = useOthers();
  const growing = (store.primary.value?.findings.length ?? 0) > 0;
  const start = startOf(store.whole.value.value ?? overview);
  const { spec, places, layout } = useMemo(
    () => overviewPicture(overview, start, others, choices, scheme, focus, growing),
    [overview, start, others, choices.axis, choices.zoom, scheme, focus, growing],
  );
  const { chart, shown, selected } = useOverviewChart(overview, places);
  useExport({
    table: () => overviewFile(overview),
    legend: () => [
      ...overview.groups.map((group) => ({ label: groupLabel(group), fill: fillOf(group.category, group.trainable, scheme) })),
      ...others.map(({ name, colour }) => ({ label: `peak of ${name}`, fill: { colour, pattern: "plain" as const } })),
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
            const group = index === null || value === null ? undefined : overview.groups[bandAt(layout, index, value)];
            point(group ? groupKey(group) : null);
          }}
        />
        <StackLegend overview={overview} ended={growing} />
        <Findings overview={overview} />
      </div>
      <StepPanel {...shown} selected={selected} focus={focus} pointed={pointed} hover={hover}>
        <OtherRuns others={others} {...shown} />
      </StepPanel>
    </div>
  );
}

/** Memory over steps, stacked by category, under the capacity line. */

import { useMemo, useRef, useState } from "preact/hooks";

import { bandAt } from "../charts/stack-layout";
import { formatBytes } from "../lib/bytes";
import { groupKey } from "../model/categories";
import type { Overview } from "../model/overview";
import { at, peakRow, rowOfStep, rowSentence } from "../model/overview";
import { runColour, runDash } from "../theme/palette";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { changeMarks, cursorRow, startOf, stepsBetween } from "./frame";
import { overviewFile, useExport } from "./export";
import { Findings } from "./findings";
import { Figure } from "./figures";
import { StackLegend } from "./legend";
import { overviewPicture, type OtherRun } from "./overview-spec";
import { StepPanel, exactBytes, panelUnit } from "./step-panel";

type NamedRun = OtherRun & { name: string };

/** The same list while its members are the same, so that a picture is not made anew. */
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

/** Overviews of the other checked runs, with their colours, as far as they have arrived. */
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
      <table class={exactBytes.value ? "figures exact" : "figures"}>
        <tbody>
          {others.map(({ name, overview: other, colour }) => {
            const [first, last] = [other.step[0] ?? 0, other.step[other.rows - 1] ?? 0];
            const bytes = step >= first && step <= last ? at(other.peak_bytes, rowOfStep(other, step)) : null;
            return (
              <Figure
                key={name}
                name={`run:${name}`}
                label={name}
                hint={`${name} · ${other.device}`}
                bytes={bytes}
                unit={panelUnit(overview)}
                exact={exactBytes.value}
                fill={{ colour, pattern: "plain" }}
              />
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

export function OverviewView({ overview }: { overview: Overview }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [focus, setFocus] = useState<string | null>(null);
  const [pointed, point] = useState<string | null>(null);
  const others = useOthers();
  const growing = (store.primary.value?.findings.length ?? 0) > 0;
  const start = startOf(store.whole.value.value ?? overview);
  const { spec, places, layout } = useMemo(
    () => overviewPicture(overview, start, others, choices, scheme, focus, growing),
    [overview, start, others, choices.axis, choices.zoom, scheme, focus, growing],
  );
  const marks = useMemo(() => changeMarks(overview, places, choices.axis), [overview, places]);
  const cursor = cursorRow(overview, store.cursor.value);
  const pin = cursorRow(overview, choices.step);
  const row = cursor ?? pin ?? Math.max(peakRow(overview), 0);
  useExport("canvas", () => overviewFile(overview));
  const stepOf = (at: number | null): number | null => (at === null ? null : (overview.step[at] ?? null));
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Memory of ${overview.run} on ${overview.device} by category over steps. Peak ${formatBytes(at(overview.peak_bytes, row) ?? 0)}.`}
          spec={spec}
          marks={marks}
          cursor={cursor}
          pin={pin}
          describe={(index) => rowSentence(overview, index)}
          onCursor={(index, value) => {
            store.cursor.value = stepOf(index);
            const band = index === null || value === null ? -1 : bandAt(layout, index, value);
            const group = overview.groups[band];
            point(group ? groupKey(group) : null);
          }}
          onPin={(index) => store.choose({ step: stepOf(index) })}
          onMark={(mark) => store.choose({ step: mark.step })}
          onZoom={(from, to) => {
            const zoom = stepsBetween(overview, places.x, from, to);
            if (zoom) store.choose({ zoom });
          }}
          onReset={() => store.choose({ zoom: null })}
          onInside={store.hold}
        />
        <StackLegend
          traced={overview.snapshots.length > 0}
          validation={overview.validations.length > 0}
          ended={growing}
          capacity={overview.capacity_bytes.some((value) => !Number.isNaN(value))}
        />
        <Findings overview={overview} />
      </div>
      <StepPanel overview={overview} row={row} focus={focus} pointed={pointed} onFocus={setFocus}>
        <OtherRuns others={others} overview={overview} row={row} />
      </StepPanel>
    </div>
  );
}

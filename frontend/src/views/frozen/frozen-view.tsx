/** Memory of frozen and trainable layers over steps, and the effect of unfreezing. */

import { useMemo } from "preact/hooks";

import { stepPainter, type Painter } from "../../charts/paint";
import { platePainter } from "../../charts/rules";
import { formatBytes, plural, shareOf, unbroken, totalBytes } from "../../lib/bytes";
import { maximum, lowerBound } from "../../lib/search";
import { categoryLabel, categoryMeaning } from "../../model/categories";
import { SIDES, costSentences, splitBySide, type Side, type SidePart } from "../../model/frozen";
import {
  comparison,
  effectSentence,
  effects,
  initialTable,
  isFreezing,
  at,
  type Overview,
} from "../../model/overview";
import { trains } from "../../model/run";
import type { LedgerTotals } from "../../model/snapshot";
import type { Choices } from "../../state/address";
import { fillOf, inks, dark, type Fill, type Ink } from "../../theme/palette";
import { Chart } from "../shared/chart";
import {
  useStore,
  useCategoryRow,
  useFocus,
  isMuted,
  type Focus,
  useChoices,
} from "../shared/context";
import { StackLegend, Choose } from "../shared/controls";
import { useExport } from "../shared/export";
import { FigureRows, Figure } from "../shared/figures";
import {
  highest,
  placesOf,
  stackedPicture,
  startOf,
  useOverviewChart,
  type Picture,
  type Places,
} from "../shared/frame";
import { LargestLayers } from "../shared/largest-layers";
import { Findings } from "../shared/states";
import { StepFigures, panelUnit, sourceOf } from "../shared/step-panel";

/** A category keeps its colour; the frozen layers' part has the diagonal pattern. */
export const sideFill = (part: SidePart): Fill =>
  fillOf({ category: part.category, trainable: part.side === "frozen" ? false : null });

const sideKey = (part: SidePart): string => `${part.side}:${part.category}`;

function boundary(
  parts: readonly SidePart[],
  sides: readonly string[],
  rows: number,
): Float64Array {
  const sum = new Float64Array(rows);
  for (const part of parts.filter(({ side }) => sides.includes(side)))
    part.bytes.forEach((value, row) => (sum[row] = (sum[row] ?? 0) + value));
  return sum;
}

function plates(
  frozen: Float64Array,
  both: Float64Array,
  overview: Overview,
  places: Places,
  ink: Ink,
): Painter[] {
  const row = Math.min(lowerBound(places.x, places.range[0]), overview.rows - 1);
  const [low, high] = [frozen[row] ?? 0, both[row] ?? 0];
  return [
    platePainter(0, low, "frozen layers", ink.text, ink.background),
    platePainter(low, high - low, "trainable layers", ink.text, ink.background),
  ];
}

export function frozenPicture(
  overview: Overview,
  parts: readonly SidePart[],
  start: number,
  choices: Choices,
  focus: Focus,
): Picture {
  const ink = inks();
  const places = placesOf(overview, start, choices);
  const fills = parts.map((part) => ({
    ...sideFill(part),
    muted: isMuted(focus, [sideKey(part), part.side], part.category),
  }));
  const frozen = boundary(parts, ["frozen"], overview.rows);
  const both = boundary(parts, ["frozen", "trainable"], overview.rows);
  const edge = { colour: ink.line, width: 1, dash: [2, 2] };
  const stack = {
    columns: parts.map(({ bytes }) => bytes),
    fills,
    peak: highest(overview.peak_bytes, places.x, places.range),
    under: [stepPainter(places.edges, frozen, edge), stepPainter(places.edges, both, edge)],
    over: plates(frozen, both, overview, places, ink),
  };
  return stackedPicture(places, stack, choices.axis);
}

const HEADINGS: Record<Side, string> = {
  frozen: "Frozen layers",
  trainable: "Trainable layers",
  other: "Other",
};

/** Frozen layers in the panel. */
const LISTED = 4;

const MEANINGS: Record<Side, string> = {
  frozen: "memory of layers whose weights are not trained, and frozen weights",
  trainable:
    "memory of layers whose weights are trained: weights, gradients, optimizer slots, activations",
  other: "memory that is not tied to a layer, or whose layer is unknown",
};

interface PartsProps {
  parts: readonly SidePart[];
  row: number;
  peak: number | null;
  whole: number;
  source: string;
  /** Bytes of a part at the selected step. */
  selected: (key: string) => number;
}

function Parts({ parts, row, peak, whole, source, selected }: PartsProps) {
  const ofRow = useCategoryRow();
  return (
    <>
      {[...SIDES].reverse().map((side) => {
        const own = parts
          .filter((part) => part.side === side)
          .map((part) => ({ part, bytes: part.bytes[row] ?? 0 }))
          .reverse();
        const total = totalBytes(own);
        return (
          <tbody key={side} class="side">
            <Figure
              {...ofRow(side, null)}
              strong
              source={source}
              name={side}
              label={HEADINGS[side]}
              hint={MEANINGS[side]}
              bytes={total}
              share={shareOf(total, peak)}
            />
            <FigureRows
              whole={whole}
              rows={own.map(({ part, bytes }) => {
                const key = sideKey(part);
                return {
                  ...ofRow(key, part.category),
                  name: key,
                  highest: maximum(part.bytes),
                  selected: selected(key),
                  label: categoryLabel(part.category),
                  hint: categoryMeaning(part.category),
                  source,
                  bytes,
                  share: shareOf(bytes, peak),
                  fill: sideFill(part),
                };
              })}
            />
          </tbody>
        );
      })}
    </>
  );
}

/**
 * Sentences on the cost of both parts and of unfreezing, at the selected step: they do not change
 * under the pointer.
 */
function Costs({
  overview,
  parts,
  row,
}: {
  overview: Overview;
  parts: readonly SidePart[];
  row: number;
}) {
  const run = useStore().primary.value;
  const training = run === null || trains(run);
  const sentences = useMemo(
    () => costSentences(overview, parts, row, training),
    [overview, parts, row, training],
  );
  return (
    <Findings
      sentences={sentences}
      aria-label="Cost of frozen and trainable layers"
      data-testid="costs"
      data-step={at(overview.step, row) ?? ""}
    />
  );
}

function Changes({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const all = useMemo(() => effects(whole), [whole]);
  const first = initialTable(whole);
  if (!first)
    return (
      <p class="legend">Frozen and trainable layers are unknown: no layer table was recorded.</p>
    );
  return (
    <ul class="findings" aria-label="Changes of trainable layers" data-testid="changes">
      <li>
        <span class="sentence">
          From step {whole.changes[0]?.step}: {plural(first.frozen_layers, "frozen layer")} with{" "}
          {formatBytes(first.frozen_weight_bytes)} of weights,{" "}
          {plural(first.trainable_layers, "trainable layer")} with{" "}
          {formatBytes(first.trainable_weight_bytes)}.
        </span>
      </li>
      {all.map((effect) => {
        const compared = comparison(effect, whole.run);
        return (
          <li key={effect.step} class={isFreezing(effect) ? "change with-link" : "with-link"}>
            <Choose title={`Show step ${effect.step}`} these={{ step: effect.step }}>
              {unbroken(effectSentence(effect))}
            </Choose>
            {compared && (
              <Choose
                class="quiet"
                title={`Compare step ${compared.step} with step ${compared.otherStep}`}
                these={compared}
              >
                Compare before and after
              </Choose>
            )}
          </li>
        );
      })}
    </ul>
  );
}

export function FrozenView({ overview, totals }: { overview: Overview; totals: LedgerTotals }) {
  const store = useStore();
  const choices = useChoices();
  const focus = useFocus();
  const start = startOf(store.whole.value.value ?? overview);
  const parts = useMemo(() => splitBySide(overview, totals), [overview, totals]);
  const { spec, places } = useMemo(
    () => frozenPicture(overview, parts, start, choices, focus),
    [overview, parts, start, choices.axis, choices.zoom, dark.value, focus],
  );
  const { chart, shown, selected } = useOverviewChart(overview, places);
  const ofSelected = useMemo(
    () => (selected.overview === overview ? parts : splitBySide(selected.overview, totals)),
    [selected.overview, overview, parts, totals],
  );
  useExport({
    table: () => ({
      columns: ["step", ...parts.map(sideKey)],
      rows: [...overview.step].map((step, index) => [
        step,
        ...parts.map(({ bytes }) => bytes[index] ?? null),
      ]),
    }),
    legend: () =>
      parts.map((part) => ({
        label: `${part.side}: ${categoryLabel(part.category)}`,
        fill: sideFill(part),
      })),
  });
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Memory of ${overview.run} on ${overview.device} in frozen and trainable layers over steps.`}
          spec={spec}
          {...chart}
        />
        <StackLegend overview={overview} validation={false} />
        <Changes overview={overview} />
        <Costs {...selected} parts={ofSelected} />
      </div>
      <StepFigures
        {...shown}
        unit={panelUnit(overview)}
        testid="sides"
        below={<LargestLayers {...shown} title="Frozen layers" count={LISTED} frozen />}
      >
        <Parts
          parts={shown.overview === overview ? parts : ofSelected}
          row={shown.row}
          peak={at(shown.overview.peak_bytes, shown.row)}
          whole={maximum(overview.peak_bytes)}
          source={sourceOf(shown.overview, shown.row)}
          selected={(key) =>
            ofSelected.find((part) => sideKey(part) === key)?.bytes[selected.row] ?? 0
          }
        />
      </StepFigures>
    </div>
  );
}

/** What the frozen part still costs, what the trainable part costs, and what an unfreezing did. */

import { useMemo } from "preact/hooks";

import { formatBytes, type Unit } from "../lib/bytes";
import { plural, unbroken } from "../lib/format";
import { categoryLabel, categoryMeaning } from "../model/categories";
import { effectSentence, effects, isFreezing } from "../model/changes";
import { SIDES, costSentences, splitBySide, type Side, type SidePart } from "../model/frozen";
import type { LedgerTotals } from "../model/ledger-totals";
import { at, peakRow, type Overview } from "../model/overview";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { useCategoryRow, useFocus, type Focus } from "./focus";
import { startOf } from "./frame";
import { frozenPicture, sideFill, sideKey } from "./frozen-spec";
import { Figure, FigureTable } from "./figures";
import { StackLegend } from "./legend";
import { useOverviewChart } from "./steps-chart";
import { PanelHead, Provenance, Totals, learnedOf, panelUnit } from "./step-panel";

const HEADINGS: Record<Side, string> = {
  frozen: "Frozen layers hold",
  trainable: "Trainable layers hold",
  other: "Neither, or unknown",
};

const MEANINGS: Record<Side, string> = {
  frozen: "all that belongs to layers whose weights are not trained, and the frozen weights themselves",
  trainable: "all that belongs to layers whose weights are trained: weights, their gradients, optimizer slots, held activations",
  other: "what belongs to no layer, or to one that is not known",
};

interface PartsProps {
  parts: readonly SidePart[];
  row: number;
  unit: Unit;
  peak: number | null;
  focus: Focus;
  hover: (key: string | null) => void;
  learned: string;
}

function Parts({ parts, row, unit, peak, focus, hover, learned }: PartsProps) {
  const store = useStore();
  const scheme = schemeOf(store);
  const common = { unit, learned };
  const ofCategory = useCategoryRow(hover);
  return (
    <>
      {[...SIDES].reverse().map((side) => {
        const own = parts.filter((part) => part.side === side);
        const total = own.reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0);
        return (
          <tbody key={side} class="side">
            <Figure
              {...common}
              strong
              name={side}
              label={HEADINGS[side]}
              hint={MEANINGS[side]}
              bytes={total}
              share={peak ? total / peak : null}
              focused={focus.hovered === side}
              onFocus={(focused) => hover(focused ? side : null)}
            />
            {[...own].reverse().map((part) => {
              const bytes = part.bytes[row] ?? null;
              const key = sideKey(part);
              return (
                <Figure
                  {...common}
                  key={key}
                  name={key}
                  label={categoryLabel(part.category)}
                  hint={categoryMeaning(part.category)}
                  bytes={bytes}
                  share={peak && bytes !== null ? bytes / peak : null}
                  fill={sideFill(part, scheme)}
                  focused={focus.hovered === key}
                  {...ofCategory(key, part.category)}
                />
              );
            })}
          </tbody>
        );
      })}
    </>
  );
}

/** What both parts cost and why, and what unfreezing would cost; of the pinned step, not of each that the pointer passes. */
function Costs({ overview, parts, row }: { overview: Overview; parts: readonly SidePart[]; row: number }) {
  const sentences = useMemo(() => costSentences(overview, parts, row), [overview, parts, row]);
  return (
    <ul class="findings" aria-label="What frozen and trainable layers cost" data-testid="costs" data-step={at(overview.step, row) ?? ""}>
      {sentences.map((sentence) => (
        <li key={sentence}>
          <span class="sentence">{unbroken(sentence)}</span>
        </li>
      ))}
    </ul>
  );
}

function Changes({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const all = useMemo(() => effects(whole), [whole]);
  // Tables of the first two steps are the beginning: the optimizer is built by the first step.
  const first = whole.changes.filter(({ step }) => step <= (whole.changes[0]?.step ?? 0) + 1).at(-1);
  if (!first) return <p class="legend">No layer table was recorded, so frozen and trainable layers are not known.</p>;
  return (
    <ul class="findings" aria-label="Changes of what is trainable" data-testid="changes">
      <li>
        <span class="sentence">
          From step {whole.changes[0]?.step}: {plural(first.frozen_layers, "frozen layer")} with {formatBytes(first.frozen_weight_bytes)} of
          weights, {plural(first.trainable_layers, "trainable layer")} with {formatBytes(first.trainable_weight_bytes)}.
        </span>
      </li>
      {all.map((effect) => (
        <li key={effect.step} class={isFreezing(effect) ? "change" : ""}>
          <button type="button" title={`Show step ${effect.step}`} onClick={() => store.choose({ step: effect.step })}>
            {unbroken(effectSentence(effect))}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** `totals`: what the ledgers of the traced steps sum to. */
export function FrozenView({ overview, totals }: { overview: Overview; totals: LedgerTotals }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const { focus, hover } = useFocus();
  const start = startOf(store.whole.value.value ?? overview);
  const parts = useMemo(() => splitBySide(overview, totals), [overview, totals]);
  const { spec, places } = useMemo(
    () => frozenPicture(overview, parts, start, choices, scheme, focus),
    [overview, parts, start, choices.axis, choices.zoom, scheme, focus],
  );
  const { chart, row } = useOverviewChart(overview, places);
  const pinnedRow = chart.pin ?? Math.max(peakRow(overview), 0);
  useExport({
    table: () => ({
      columns: ["step", ...parts.map(sideKey)],
      rows: [...overview.step].map((step, index) => [step, ...parts.map(({ bytes }) => bytes[index] ?? null)]),
    }),
    legend: () => parts.map((part) => ({ label: `${part.side}: ${categoryLabel(part.category)}`, fill: sideFill(part, scheme) })),
  });
  const unit = panelUnit(overview);
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Memory of ${overview.run} on ${overview.device} held by frozen and trainable layers over steps.`}
          spec={spec}
          {...chart}
        />
        <StackLegend overview={overview} validation={false} />
        <Costs overview={overview} parts={parts} row={pinnedRow} />
        <Changes overview={overview} />
      </div>
      <aside class="panel" aria-label="Figures of one step">
        <PanelHead overview={overview} row={row} unit={unit} />
        <Provenance overview={overview} row={row} />
        <FigureTable testid="sides">
          <Parts
            parts={parts}
            row={row}
            unit={unit}
            peak={at(overview.peak_bytes, row)}
            focus={focus}
            hover={hover}
            learned={learnedOf(overview, row)}
          />
          <Totals overview={overview} row={row} unit={unit} />
        </FigureTable>
      </aside>
    </div>
  );
}

/** What the frozen part still costs, what the trainable part costs, and what an unfreezing did. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { formatBytes, type Unit } from "../lib/bytes";
import { plural, unbroken } from "../lib/format";
import { categoryLabel, categoryMeaning } from "../model/categories";
import { effectSentence, effects, isFreezing } from "../model/changes";
import { SIDES, chosenSnapshots, splitBySide, type Side, type SidePart } from "../model/frozen";
import { at, peakRow, rowSentence, type Overview } from "../model/overview";
import type { LedgerRow } from "../model/snapshot";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { changeMarks, cursorRow, startOf, stepsBetween } from "./frame";
import { frozenPicture, sideFill, sideKey } from "./frozen-spec";
import { Figure } from "./figures";
import { StackLegend } from "./legend";
import { PanelHead, Provenance, Totals, exactBytes, panelUnit } from "./step-panel";

/** Ledgers fetched for one picture: more would not be told apart, and each is a request. */
const LEDGERS = 48;

const HEADINGS: Record<Side, string> = {
  frozen: "Frozen layers hold",
  trainable: "Trainable layers hold",
  other: "Neither, or unknown",
};

/** Ledgers by index of the overview's snapshots, as far as they have arrived; the others take the nearest earlier one. */
function useLedgers(overview: Overview): ReadonlyMap<number, readonly LedgerRow[]> {
  const store = useStore();
  const chosen = useMemo(() => chosenSnapshots(overview.snapshots.length, LEDGERS), [overview]);
  useEffect(() => {
    for (const index of chosen) {
      const ref = overview.snapshots[index];
      if (ref) store.wantSnapshot(ref);
    }
  }, [chosen]);
  const arrived = chosen.map((index) => {
    const ref = overview.snapshots[index];
    return ref ? store.snapshotOf(ref).value : null;
  });
  return useMemo(() => {
    const ledgers = new Map<number, readonly LedgerRow[]>();
    let nearest: readonly LedgerRow[] | null = null;
    overview.snapshots.forEach((_, index) => {
      nearest = arrived[chosen.indexOf(index)]?.ledger ?? nearest;
      if (nearest) ledgers.set(index, nearest);
    });
    return ledgers;
  }, [overview, arrived.filter(Boolean).length]);
}

interface PartsProps {
  parts: readonly SidePart[];
  row: number;
  unit: Unit;
  peak: number | null;
  focus: string | null;
  onFocus: (key: string | null) => void;
}

function Parts({ parts, row, unit, peak, focus, onFocus }: PartsProps) {
  const store = useStore();
  const scheme = schemeOf(store);
  const common = { unit, exact: exactBytes.value };
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
              bytes={total}
              share={peak ? total / peak : null}
              focused={focus === side}
              onFocus={(focused) => onFocus(focused ? side : null)}
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
                  focused={focus === key}
                  onFocus={(focused) => onFocus(focused ? key : null)}
                />
              );
            })}
          </tbody>
        );
      })}
    </>
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

export function FrozenView({ overview }: { overview: Overview }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [focus, setFocus] = useState<string | null>(null);
  const ledgers = useLedgers(overview);
  const start = startOf(store.whole.value.value ?? overview);
  const parts = useMemo(() => splitBySide(overview, ledgers), [overview, ledgers]);
  const { spec, places } = useMemo(
    () => frozenPicture(overview, parts, start, choices, scheme, focus),
    [overview, parts, start, choices.axis, choices.zoom, scheme, focus],
  );
  const marks = useMemo(() => changeMarks(overview, places, choices.axis), [overview, places]);
  const cursor = cursorRow(overview, store.cursor.value);
  const pin = cursorRow(overview, choices.step);
  const row = cursor ?? pin ?? Math.max(peakRow(overview), 0);
  useExport("canvas", () => ({
    columns: ["step", ...parts.map(sideKey)],
    rows: [...overview.step].map((step, index) => [step, ...parts.map(({ bytes }) => bytes[index] ?? null)]),
  }));
  const stepOf = (index: number | null): number | null => (index === null ? null : (overview.step[index] ?? null));
  const unit = panelUnit(overview);
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Memory of ${overview.run} on ${overview.device} held by frozen and trainable layers over steps.`}
          spec={spec}
          marks={marks}
          cursor={cursor}
          pin={pin}
          describe={(index) => rowSentence(overview, index)}
          onCursor={(index) => (store.cursor.value = stepOf(index))}
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
          validation={false}
          capacity={overview.capacity_bytes.some((value) => !Number.isNaN(value))}
        />
        <Changes overview={overview} />
      </div>
      <aside class="panel" aria-label="Figures of one step">
        <PanelHead overview={overview} row={row} unit={unit} />
        <Provenance overview={overview} row={row} />
        <table class={exactBytes.value ? "figures exact" : "figures"} data-testid="sides">
          <Parts parts={parts} row={row} unit={unit} peak={at(overview.peak_bytes, row)} focus={focus} onFocus={setFocus} />
          <Totals overview={overview} row={row} unit={unit} />
        </table>
      </aside>
    </div>
  );
}

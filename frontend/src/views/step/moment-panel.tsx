/** The figures of one moment of a step, and of a selected span. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { formatCount, unitOf, formatMilliseconds, plural, shareOf, formatBytes, type Unit } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { categoryMeaning, categoryLabel, groupKey, groupLabel } from "../../model/categories";
import { modeLabel } from "../../model/overview";
import { tail } from "../../model/run";
import { bandOf, isCompiled, ownerOfRow, type Timeline } from "../../model/timeline";
import { spanStatistics, type SpanStatistics } from "../../model/timeline-order";
import { bandLabel, bandMeaning, timeText, tensorOf, tensorLines, whatText } from "../../model/timeline-text";
import { fillOf } from "../../theme/palette";
import { useStore, useCategoryRow, schemeOf, type Focus } from "../shared/context";
import { FigureRows, FigureTable, UnitButton, WordFigure, Swatch, useFigureText } from "../shared/figures";
import { tipOf } from "../shared/tips";
import type { StepLook } from "./step-spec";

interface MomentPanelProps {
  timeline: Timeline;
  look: StepLook;
  moment: number;
  why: "hover" | "selected" | "peak";
  pointed: string | null;
  focus: Focus;
  hover: (key: string | null) => void;
}

const whenAt = (timeline: Timeline, moment: number): string => `step ${timeline.step}, ${timeText(timeline, moment)} after its start`;

const sourceAtMoment = (timeline: Timeline, moment: number): string =>
  `the trace${isCompiled(timeline, moment) ? " and XLA's buffer assignment" : ""}, ${whenAt(timeline, moment)}`;

function PanelHead({ timeline, moment, why, unit }: MomentPanelProps & { unit: ReturnType<typeof unitOf> }) {
  const store = useStore();
  const band = bandOf(timeline, moment);
  return (
    <header class="panel-head">
      <h2 data-testid="moment" data-moment={moment} data-step={timeline.step}>
        {moment === timeline.peak ? "Peak" : timeText(timeline, moment)}
        <span class="why">
          {why === "selected" && (
            <>
              selected
              <button
                type="button"
                class="unpin"
                aria-label="Clear the selected moment"
                title="Clear (Escape)"
                onClick={() => store.choose({ moment: null })}
              >
                ×
              </button>
            </>
          )}
        </span>
        <UnitButton unit={unit} />
      </h2>
      <p class="small one-line">
        {moment === timeline.peak && `${timeText(timeline, moment)} · `}
        <span title={band ? bandMeaning(band.name) : ""}>{band ? bandLabel(band.name) : "outside the passes"}</span>
        {isCompiled(timeline, moment) && " · XLA buffer assignment"}
      </p>
      <p class="small one-line">
        {`after ${formatCount(timeline.event[moment] ?? 0)} of ${formatCount(timeline.events)} allocator events`}
      </p>
    </header>
  );
}

/** The parts of the stack at the moment, topmost first; a click selects the category or layer. */
function Breakdown({ timeline, look, moment, pointed, focus, hover }: MomentPanelProps) {
  const store = useStore();
  const { layer: selected } = store.choices.value;
  const ofCategory = useCategoryRow(hover);
  const ofLayer = (key: string, layer: string) => ({
    chosen: layer === selected,
    onChoose: (): void => store.choose({ layer: layer === selected ? null : layer }),
    onFocus: (focused: boolean): void => hover(focused ? key : null),
  });
  const total = look.layout.total[moment] ?? 0;
  const unit = unitOf(timeline.in_use_bytes);
  const highest = useMemo(() => look.series.map(({ bytes }) => maximum(bytes)), [look.series]);
  const rows = look.series.map((part, index) => ({ part, index })).reverse();
  return (
    <tbody>
      <FigureRows
        unit={unit}
        whole={timeline.in_use_bytes}
        rows={rows.map(({ part: { key, group, layer, bytes }, index }) => {
          const events = group ? ofCategory(key, group.category) : layer !== null ? ofLayer(key, layer) : { chosen: false };
          return {
            name: key,
            highest: highest[index] ?? null,
            label: look.labels[index] ?? "",
            hint: group ? categoryMeaning(group.category) : (layer ?? ""),
            source: sourceAtMoment(timeline, moment),
            bytes: bytes[moment] ?? 0,
            share: shareOf(bytes[moment] ?? 0, total),
            fill: look.fills[index] ?? { colour: "", pattern: "plain" },
            focused: (pointed ?? focus.hovered) === key,
            ...events,
          };
        })}
      />
    </tbody>
  );
}

export function MomentPanel(props: MomentPanelProps) {
  const { timeline, look, moment } = props;
  const unit = unitOf(timeline.in_use_bytes);
  return (
    <aside class="panel" aria-label="Figures of one moment">
      <PanelHead {...props} unit={unit} />
      <FigureTable testid="timeline-breakdown">
        <Breakdown {...props} />
        <tbody class="totals">
          <WordFigure unit={unit} strong word="in_use_bytes" when={whenAt(timeline, moment)} bytes={look.layout.total[moment] ?? 0} />
          <WordFigure unit={unit} word="peak_bytes" when={whenAt(timeline, timeline.peak)} bytes={timeline.in_use_bytes} />
        </tbody>
      </FigureTable>
      <p class="small">
        {`Step ${timeline.step} · ${timeline.phase} · ${modeLabel(timeline.mode)} · ${plural(timeline.allocations, "allocation")} in `}
        {formatMilliseconds(timeline.duration_ns / 1e6)}
      </p>
    </aside>
  );
}

type Span = readonly [number, number];

function Bytes({ name, bytes, unit }: { name: string; bytes: number; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" data-figure={name} data-bytes={bytes} data-tip={tipOf(bytes)}>
      {text(bytes)}
    </td>
  );
}

function Flows({ found, unit }: { found: SpanStatistics; unit: Unit }) {
  const scheme = schemeOf(useStore());
  const row = (flow: SpanStatistics | SpanStatistics["groups"][number], key: string, label: ComponentChildren) => (
    <tr key={key} data-group={key}>
      <th scope="row">{label}</th>
      <Bytes name="allocated" bytes={flow.allocated_bytes} unit={unit} />
      <Bytes name="freed" bytes={flow.freed_bytes} unit={unit} />
      <Bytes name="net" bytes={flow.allocated_bytes - flow.freed_bytes} unit={unit} />
    </tr>
  );
  return (
    <table class="flows" data-testid="span-flows">
      <thead>
        <tr>
          {["category", "allocated", "freed", "net"].map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {found.groups.map((flow) =>
          row(
            flow,
            groupKey(flow.group),
            <>
              <Swatch fill={fillOf(flow.group.category, flow.group.trainable, scheme)} />
              {groupLabel(flow.group)}
            </>,
          ),
        )}
        {row(found, "total", "total")}
      </tbody>
    </table>
  );
}

function Largest({ timeline, found }: { timeline: Timeline; found: SpanStatistics }) {
  const store = useStore();
  const { tensor: selected } = store.choices.value;
  return (
    <ol class="largest" data-testid="span-largest">
      {found.largest.map((number) => {
        const tensor = tensorOf(timeline, number);
        if (!tensor) return null;
        const row = tensor.rows[0] ?? 0;
        return (
          <li key={number} data-tensor={number} data-bytes={tensor.bytes}>
            <button
              type="button"
              aria-pressed={number === selected}
              title={tensorLines(timeline, tensor).join("\n")}
              onClick={() => store.choose({ tensor: number })}
            >
              {`${formatBytes(tensor.bytes)} ${categoryLabel(ownerOfRow(timeline, row).category)}, ${tail(whatText(timeline, row), 2)}`}
            </button>
          </li>
        );
      })}
      {found.largest.length === 0 && <li>No tensor is allocated in this span.</li>}
    </ol>
  );
}

export function SpanPanel({ timeline, total, span }: { timeline: Timeline; total: Float64Array; span: Span }) {
  const store = useStore();
  const [first, last] = span;
  const unit = unitOf(timeline.in_use_bytes);
  const found = useMemo(() => spanStatistics(timeline, total, span), [timeline, total, first, last]);
  return (
    <section class="tensor span" aria-label="Selected span" data-testid="span" data-first={first} data-last={last}>
      <h3>
        {`Selected span: ${timeText(timeline, first)} to ${timeText(timeline, last)}`}
        <span class="tensor-tools">
          <button type="button" class="quiet" disabled={first === last} onClick={() => store.choose({ span })}>
            Zoom to span
          </button>
          <button type="button" class="quiet" onClick={() => store.choose({ selection: null })}>
            Clear span
          </button>
        </span>
      </h3>
      <p class="small">
        <span data-figure="peak" data-bytes={found.peak_bytes} data-tip={tipOf(found.peak_bytes)}>
          {`Peak ${formatBytes(found.peak_bytes)} at ${timeText(timeline, found.peak)}`}
        </span>
        {` · ${formatCount(found.allocated)} tensors allocated, ${formatCount(found.freed)} freed`}
      </p>
      <div class="span-parts">
        <Flows found={found} unit={unit} />
        <div>
          <h4>Largest tensors allocated in it</h4>
          <Largest timeline={timeline} found={found} />
        </div>
      </div>
    </section>
  );
}

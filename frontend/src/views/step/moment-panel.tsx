/** The figures of one moment of a step. */

import { useMemo } from "preact/hooks";

import { formatCount, unitOf, formatMilliseconds, plural, shareOf } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { categoryMeaning } from "../../model/categories";
import { modeLabel } from "../../model/overview";
import { bandOf, isCompiled, type Timeline } from "../../model/timeline";
import { bandLabel, bandMeaning, timeText } from "../../model/timeline-text";
import { useStore } from "../shared/context";
import { FigureRows } from "../shared/figure-rows";
import { FigureTable, UnitButton, WordFigure } from "../shared/figures";
import { useCategoryRow, type Focus } from "../shared/focus";
import type { StepLook } from "./step-spec";

interface MomentPanelProps {
  timeline: Timeline;
  look: StepLook;
  moment: number;
  /** Why this moment is shown. */
  why: "hover" | "selected" | "peak";
  pointed: string | null;
  focus: Focus;
  hover: (key: string | null) => void;
}

const whenAt = (timeline: Timeline, moment: number): string => `step ${timeline.step}, ${timeText(timeline, moment)} after its start`;

/** Source of the figures of a moment. */
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

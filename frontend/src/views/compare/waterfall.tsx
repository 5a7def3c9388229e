/** The waterfall from A to B by category, on the page and as a saved drawing. */

import {
  LETTER,
  labelLines,
  shortened,
  waterfallLayout,
  type WaterfallLayout,
} from "../../charts/layout";
import { FONT } from "../../charts/rules";
import { formatBytes, formatDelta, plural } from "../../lib/bytes";
import { WORDS } from "../../model/categories";
import {
  deltaKey,
  deltaLabel,
  deltaMeaning,
  foldDeltas,
  type GroupDelta,
} from "../../model/compare";
import { fillOf, inks, plainFill, type Ink } from "../../theme/palette";
import { isMuted, useSize, type Focus } from "../shared/context";
import { Patterns, svgFill } from "../shared/export";
import { tipOf } from "../shared/tips";

const HEIGHT = 246;
const LINES = 3;
const LINE = 13;
const [TOP, BOTTOM] = [22, 8 + LINES * LINE + 4];

interface ComparedBar {
  name: string;
  /** What tells it from the other one. */
  short: string;
  letter: "A" | "B";
  colour: string;
}

interface WaterfallProps {
  /** All of them: those too small to matter are one bar, the last. */
  deltas: readonly GroupDelta[];
  from: ComparedBar;
  to: ComparedBar;
  /** Whether the names of A and B stand above it. */
  beside?: boolean;
  focus: Focus;
}

type Drawn = ReturnType<typeof drawnBars>[number];

const arrowed = (bytes: number): string => `${bytes > 0 ? "▲" : "▼"} ${formatDelta(bytes)}`;

function drawnBars(
  { deltas, from, to, beside = false, focus }: WaterfallProps,
  layout: WaterfallLayout,
  slot: number,
) {
  const { shown, folded } = foldDeltas(deltas);
  return layout.bars.map(({ index, from: start, to: end }, place) => {
    const one = shown[index];
    const side = index === -1 ? from : to;
    const where = {
      key: index,
      middle: (place + 0.5) * slot,
      low: Math.max(Math.min(start, end), layout.low),
      high: Math.max(start, end),
      end,
    };
    if (folded && index === shown.length) {
      return {
        ...where,
        name: "others",
        bytes: folded.delta,
        label: beside ? "others" : plural(folded.count, "other"),
        fill: plainFill(inks().faint),
        muted: focus.hovered !== null || focus.category !== null,
        // The table beside it has their row.
        figure: beside ? "" : arrowed(folded.delta),
        tip: tipOf(folded.delta, "B − A: categories that differ by less than 1 %"),
      };
    }
    return {
      ...where,
      name: one ? deltaKey(one) : index === -1 ? "peak:A" : "peak:B",
      bytes: one ? one.delta : end,
      label: one ? deltaLabel(one) : beside ? side.letter : side.name,
      fill: one ? fillOf(one.group) : plainFill(side.colour),
      muted: one !== undefined && isMuted(focus, [deltaKey(one)], one.group.category),
      figure: one ? arrowed(one.delta) : formatBytes(end),
      tip: one
        ? tipOf(one.delta, `B − A: ${deltaMeaning(one)}`)
        : tipOf(end, side.name, WORDS.peak_bytes.meaning),
    };
  });
}

interface BarProps {
  bar: Drawn;
  width: number;
  /** Width of the bar with the room beside it, in which its label stays. */
  slot: number;
  y: (value: number) => number;
  ink: Ink;
}

function Bar({ bar, width, slot, y, ink }: BarProps) {
  const { name, bytes, middle, low, high, label, fill, muted, figure, tip } = bar;
  return (
    <g text-anchor="middle" fill={ink.text} data-figure={name} data-bytes={bytes} data-tip={tip}>
      <rect
        x={middle - width / 2}
        width={width}
        y={y(high)}
        height={Math.max(y(low) - y(high), 1.5)}
        fill={svgFill(fill)}
        opacity={muted ? 0.3 : 1}
        rx="2"
      />
      <text x={middle} y={y(high) - 6} font-weight="500">
        {figure}
      </text>
      {labelLines(label, Math.floor(slot / LETTER), LINES).map((line, row) => (
        <text key={row} x={middle} y={HEIGHT - BOTTOM + 16 + LINE * row} fill={ink.faint}>
          {line}
        </text>
      ))}
    </g>
  );
}

interface WaterfallDrawingProps extends WaterfallProps {
  width: number;
}

function layoutOf({ deltas }: WaterfallProps): WaterfallLayout {
  const { shown, folded } = foldDeltas(deltas);
  const changes = [...shown, ...(folded ? [folded] : [])].map(({ delta }) => delta);
  const start = deltas.reduce((sum, one) => sum + one.from, 0);
  return waterfallLayout(start, changes);
}

/**
 * Narrower than this, bars beside each other have no room for "unattributed": they lie below each
 * other.
 */
const LEAST_SLOT = 13 * LETTER;
const [ROW, FIGURES] = [24, 80];
const NAMES_SHARE = 0.4;

interface Scaled {
  place: (value: number) => number;
  bars: readonly Drawn[];
  ink: Ink;
}

const namesWidth = (labels: readonly string[], width: number): number =>
  Math.min(
    Math.max(...labels.map((label) => label.length)) * LETTER + 16,
    Math.floor(width * NAMES_SHARE),
  );

function Upright({ place: y, bars, ink, slot, low }: Scaled & { slot: number; low: number }) {
  const barWidth = Math.min(slot * 0.7, 90);
  return (
    <>
      <line x1="0" x2={slot * bars.length} y1={y(low)} y2={y(low)} stroke={ink.faint} />
      {bars.slice(0, -1).map(({ key, middle, end }) => {
        const [x1, x2] = [middle + barWidth / 2, middle + slot - barWidth / 2];
        return (
          <line
            key={key}
            x1={x1}
            x2={x2}
            y1={y(end)}
            y2={y(end)}
            stroke={ink.faint}
            stroke-dasharray="2 3"
          />
        );
      })}
      {bars.map((bar) => (
        <Bar key={bar.key} bar={bar} width={barWidth} slot={slot} y={y} ink={ink} />
      ))}
    </>
  );
}

const Lying = ({ place: x, bars, ink, names }: Scaled & { names: number }) => (
  <>
    {bars.map(({ key, name, bytes, low, high, label, fill, muted, figure, tip }, row) => {
      const top = row * ROW + 3;
      return (
        <g key={key} fill={ink.text} data-figure={name} data-bytes={bytes} data-tip={tip}>
          <text x={x(high) + 6} y={top + 13} font-weight="500">
            {figure}
          </text>
          <text x={names - 8} y={top + 13} text-anchor="end">
            {shortened(label, Math.floor((names - 16) / LETTER))}
          </text>
          <rect
            x={x(low)}
            width={Math.max(x(high) - x(low), 1.5)}
            y={top}
            height={ROW - 6}
            fill={svgFill(fill)}
            opacity={muted ? 0.3 : 1}
            rx="2"
          />
        </g>
      );
    })}
  </>
);

export function WaterfallDrawing(props: WaterfallDrawingProps) {
  const { from, to, width } = props;
  const ink = inks();
  const layout = layoutOf(props);
  const slot = width / layout.bars.length;
  const upright = slot >= LEAST_SLOT;
  const height = upright ? HEIGHT : layout.bars.length * ROW;
  const share = (value: number): number => (value - layout.low) / (layout.high - layout.low);
  const bars = drawnBars(props, layout, slot);
  const labels = bars.map(({ label }) => label);
  const names = namesWidth(labels, width);
  const place = (value: number): number =>
    upright
      ? TOP + (1 - share(value)) * (HEIGHT - TOP - BOTTOM)
      : names + share(value) * Math.max(width - names - FIGURES, 20);
  const said = bars.map(({ label, figure }) => `${label} ${figure}`.trim()).join(", ");
  return (
    <svg
      xmlns="http://www.w3.org/2000/svg"
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      font-family={FONT}
      font-size="11"
      role="img"
      aria-label={`From ${from.name} to ${to.name}: ${said}`}
    >
      <Patterns fills={bars.map(({ fill }) => fill)} ground={ink.background} />
      <rect width={width} height={height} fill={ink.background} />
      {upright ? (
        <Upright place={place} bars={bars} ink={ink} slot={slot} low={layout.low} />
      ) : (
        <Lying place={place} bars={bars} ink={ink} names={names} />
      )}
    </svg>
  );
}

export function Waterfall(props: WaterfallProps) {
  const { host, width: exact } = useSize();
  const width = Math.floor(exact);
  const { low } = layoutOf(props);
  const { from, to } = props;
  return (
    <div class="waterfall" ref={host} data-testid="waterfall">
      <h3>
        {from.short} → {to.short}
      </h3>
      {width > 0 && <WaterfallDrawing {...props} beside width={width} />}
      {low > 0 && <p class="small">The axis starts at {formatBytes(low)}.</p>}
    </div>
  );
}

/** The bridge by category from A to B, as a drawing that can be saved. */

import { useEffect, useRef, useState } from "preact/hooks";

import { bridgeLayout, type BridgeLayout } from "../charts/bridge-layout";
import { formatBytes, formatDelta } from "../lib/bytes";
import { categoryMeaning, groupKey, groupLabel } from "../model/categories";
import type { GroupDelta } from "../model/compare";
import { WORDS } from "../model/words";
import { INKS, fillOf, type Fill, type Ink, type Scheme } from "../theme/palette";
import { isMuted, type Focus } from "./focus";
import { Patterns, svgFill } from "./svg";
import { tipOf } from "./tips";

const HEIGHT = 236;
const [TOP, BOTTOM] = [22, 44];
const FONT = '"Roboto", "Helvetica Neue", Arial, sans-serif';

/** A label in at most two lines, broken at the space nearest to its middle. */
function lines(label: string): string[] {
  const spaces = [...label.matchAll(/ /g)].map(({ index }) => index);
  if (label.length < 12 || spaces.length === 0) return [label];
  const cut = spaces.reduce((best, place) => (Math.abs(place - label.length / 2) < Math.abs(best - label.length / 2) ? place : best));
  return [label.slice(0, cut), label.slice(cut + 1)];
}

export interface BridgeProps {
  deltas: readonly GroupDelta[];
  from: { name: string; colour: string };
  to: { name: string; colour: string };
  focus: Focus;
  scheme: Scheme;
}

function useWidth() {
  const host = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!host.current) return undefined;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  return { host, width };
}

interface Drawn {
  key: number;
  middle: number;
  low: number;
  high: number;
  end: number;
  label: string;
  fill: Fill;
  muted: boolean;
  figure: string;
  tip: string;
}

/** Every bar with its label and colour; `low`, `high` and `end` are levels in bytes. */
function drawnBars({ deltas, from, to, focus, scheme }: BridgeProps, layout: BridgeLayout, slot: number): Drawn[] {
  return layout.bars.map(({ index, from: start, to: end }, place) => {
    const one = deltas[index];
    const side = index === -1 ? from : to;
    return {
      key: index,
      middle: (place + 0.5) * slot,
      low: Math.max(Math.min(start, end), layout.low),
      high: Math.max(start, end),
      end,
      label: one ? groupLabel(one.group) : side.name,
      fill: one ? fillOf(one.group.category, one.group.trainable, scheme) : { colour: side.colour, pattern: "plain" },
      muted: one !== undefined && isMuted(focus, [groupKey(one.group)], one.group.category),
      figure: one ? formatDelta(one.delta) : formatBytes(end),
      tip: one ? tipOf(one.delta, `B − A: ${categoryMeaning(one.group.category)}`) : tipOf(end, WORDS.peak_bytes.meaning),
    };
  });
}

function Bar({ bar, width, y, ink }: { bar: Drawn; width: number; y: (value: number) => number; ink: Ink }) {
  const { middle, low, high, label, fill, muted, figure, tip } = bar;
  return (
    <g text-anchor="middle" fill={ink.text} data-tip={tip}>
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
      {lines(label.length > 26 ? `${label.slice(0, 25)}…` : label).map((line, row) => (
        <text key={row} x={middle} y={HEIGHT - BOTTOM + 16 + 13 * row} fill={ink.faint}>
          {line}
        </text>
      ))}
    </g>
  );
}

interface BridgeDrawingProps extends BridgeProps {
  width: number;
}

const layoutOf = ({ deltas }: BridgeProps): BridgeLayout =>
  bridgeLayout(
    deltas.reduce((sum, one) => sum + one.from, 0),
    deltas.map(({ delta }) => delta),
  );

/** The bridge as a drawing, which is also what is saved. */
export function BridgeDrawing(props: BridgeDrawingProps) {
  const { from, to, scheme, width } = props;
  const ink = INKS[scheme];
  const layout = layoutOf(props);
  const slot = width / layout.bars.length;
  const barWidth = Math.min(slot * 0.7, 90);
  const y = (value: number): number => TOP + (1 - (value - layout.low) / (layout.high - layout.low)) * (HEIGHT - TOP - BOTTOM);
  const bars = drawnBars(props, layout, slot);
  const said = bars.map(({ label, figure }) => `${label} ${figure}`).join(", ");
  const box = { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` };
  return (
    <svg
      xmlns="http://www.w3.org/2000/svg"
      {...box}
      font-family={FONT}
      font-size="11"
      role="img"
      aria-label={`From ${from.name} to ${to.name}: ${said}`}
    >
      <Patterns fills={bars.map(({ fill }) => fill)} ground={ink.background} />
      <rect width={width} height={HEIGHT} fill={ink.background} />
      <line x1="0" x2={width} y1={y(layout.low)} y2={y(layout.low)} stroke={ink.faint} />
      {bars.slice(0, -1).map(({ key, middle, end }) => {
        const [x1, x2] = [middle + barWidth / 2, middle + slot - barWidth / 2];
        return <line key={key} x1={x1} x2={x2} y1={y(end)} y2={y(end)} stroke={ink.faint} stroke-dasharray="2 3" />;
      })}
      {bars.map((bar) => (
        <Bar key={bar.key} bar={bar} width={barWidth} y={y} ink={ink} />
      ))}
    </svg>
  );
}

export function Bridge(props: BridgeProps) {
  const { host, width } = useWidth();
  const { low } = layoutOf(props);
  return (
    <div class="bridge" ref={host} data-testid="bridge">
      {width > 0 && <BridgeDrawing {...props} width={width} />}
      {low > 0 && <p class="small">The bars begin at {formatBytes(low)}, so that the changes can be seen.</p>}
    </div>
  );
}

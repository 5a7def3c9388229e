/** A waterfall from one total to another, a bar for each change between them. In data units. Pure. */

interface WaterfallBar {
  /** Index of the change; -1 for the first total, -2 for the last. */
  index: number;
  from: number;
  to: number;
}

export interface WaterfallLayout {
  bars: WaterfallBar[];
  /** Ends of the axis; it begins above 0 where the changes would be too small to be seen. */
  low: number;
  high: number;
}

/** Below this share of the highest level the changes are lost on an axis that begins at 0. */
const SMALL = 0.25;

export function waterfallLayout(start: number, deltas: readonly number[]): WaterfallLayout {
  let level = start;
  const bars: WaterfallBar[] = [{ index: -1, from: 0, to: start }];
  deltas.forEach((delta, index) => {
    if (delta === 0) return;
    bars.push({ index, from: level, to: level + delta });
    level += delta;
  });
  bars.push({ index: -2, from: 0, to: level });
  const levels = bars.flatMap(({ index, from, to }) => (index < 0 ? [to] : [from, to]));
  const [least, most] = [Math.min(...levels), Math.max(...levels, 1)];
  const spread = most - least;
  const low = spread > 0 && spread < SMALL * most ? Math.max(least - spread, 0) : 0;
  return { bars, low, high: most + (most - low) * 0.12 };
}

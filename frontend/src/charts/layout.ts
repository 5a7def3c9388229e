/** Geometry of stacks, waterfalls, labels and marks. Pure. */

export interface StackLayout {
  /** Edges of the rows' cells, one more than rows. */
  edges: Float64Array;
  /** Upper boundary of each band, bottom band first. */
  tops: Float64Array[];
  /** That of the uppermost band. */
  total: Float64Array;
}

export function stackLayout(edges: Float64Array, bands: readonly Float64Array[]): StackLayout {
  const sum = new Float64Array(Math.max(edges.length - 1, 0));
  const tops = bands.map((band) => {
    for (let row = 0; row < sum.length; row += 1)
      sum[row] = (sum[row] as number) + (band[row] || 0);
    return Float64Array.from(sum);
  });
  return { edges, tops, total: sum };
}

/** Index of the band that holds `value` at a row, -1 above the stack. */
export function bandAt(layout: Pick<StackLayout, "tops">, row: number, value: number): number {
  return layout.tops.findIndex(
    (top, index) =>
      value <= (top[row] as number) && (top[row] as number) > (layout.tops[index - 1]?.[row] ?? 0),
  );
}

/**
 * Spans of x around the rows for which `marked` is 1. A row next to a pause, such as a validation
 * on a time axis, is only as wide as on its other side.
 */
export function markedSpans(
  x: Float64Array,
  edges: Float64Array,
  marked: Float64Array,
): [number, number][] {
  const spans: [number, number][] = [];
  for (let row = 0; row < marked.length; row += 1) {
    if (marked[row] !== 1) continue;
    const place = x[row] as number;
    const half = Math.min(place - (edges[row] as number), (edges[row + 1] as number) - place);
    const last = spans.at(-1);
    if (last && last[1] >= place - half) last[1] = place + half;
    else spans.push([place - half, place + half]);
  }
  return spans;
}

interface WaterfallBar {
  /** Index of the change; -1 for the first total, -2 for the last. */
  index: number;
  from: number;
  to: number;
}

export type WaterfallLayout = ReturnType<typeof waterfallLayout>;

/** Below this share of the highest level the changes are lost on an axis that begins at 0. */
const SMALL = 0.25;

/**
 * Bars and the ends of the axis; it begins above 0 where the changes would be too small to be seen.
 */
export function waterfallLayout(start: number, deltas: readonly number[]) {
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

/** Pixels of a letter at font size 11: enough for fonts that are wider than Roboto. */
export const LETTER = 7;

export const shortened = (text: string, letters: number): string =>
  text.length > letters ? `${text.slice(0, Math.max(letters - 1, 0))}…` : text;

/**
 * At most `most` lines of at most `letters`, broken after spaces and after the separators of names.
 */
export function labelLines(label: string, letters: number, most: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of label.split(/(?<=[\s_/.-])/)) {
    if (line !== "" && (line + word).trimEnd().length > letters) {
      lines.push(line.trimEnd());
      line = word;
    } else line += word;
  }
  lines.push(line.trimEnd());
  const shown = [
    ...lines.slice(0, most - 1),
    ...(lines.length >= most ? [lines.slice(most - 1).join(" ")] : []),
  ];
  return shown.map((one) => shortened(one, letters));
}

export interface Mark {
  x: number;
  label: string;
}

const DOT = 16;
const GAP = 6;

/**
 * Labels in one line from left to right, each at its place; those that do not fit become dots.
 * `widthOf` measures a label.
 */
export function placeMarks(
  marks: readonly Mark[],
  width: number,
  widthOf: (label: string) => number,
  maximum: number,
) {
  let end = -Infinity;
  return marks.map((mark, index) => {
    const next = marks.slice(index + 1).find((other) => other.x <= width)?.x ?? width + GAP;
    const wanted = Math.min(widthOf(mark.label), maximum);
    if (mark.x >= end + GAP && mark.x + wanted + GAP <= next) {
      end = mark.x + wanted;
      return { ...mark, index, left: mark.x, width: wanted, flipped: false, bare: false };
    }
    if (mark.x - wanted >= Math.max(end + GAP, 0)) {
      end = mark.x;
      return { ...mark, index, left: mark.x - wanted, width: wanted, flipped: true, bare: false };
    }
    const room = next - GAP - mark.x;
    if (mark.x >= end + GAP && room >= 72) {
      end = mark.x + room;
      return { ...mark, index, left: mark.x, width: room, flipped: false, bare: false };
    }
    end = Math.max(end, mark.x + DOT / 2);
    return { ...mark, index, left: mark.x - DOT / 2, width: DOT, flipped: false, bare: true };
  });
}

interface Block {
  from: number;
  to: number;
  label: string;
  shaded: boolean;
}

/**
 * Epochs as blocks in pixels; labels only where they fit, neighbours too narrow to be told apart as
 * one.
 */
export function placeBlocks(
  spans: readonly { from: number; to: number; name: number }[],
  widthOf: (label: string) => number,
): Block[] {
  const blocks: (Block & { first: number; last: number })[] = [];
  spans.forEach(({ from, to, name }, index) => {
    const last = blocks.at(-1);
    if (last && to - from < 3 && last.to - last.from < 24) {
      last.to = to;
      last.last = name;
    } else blocks.push({ from, to, label: "", shaded: index % 2 === 1, first: name, last: name });
  });
  return blocks.map(({ from, to, first, last }, index) => {
    const short = first === last ? String(first) : `${first}–${last}`;
    const long = first === last ? `epoch ${first}` : `epochs ${short}`;
    const label = [long, short].find((candidate) => widthOf(candidate) + 8 <= to - from) ?? "";
    return { from, to, label, shaded: index % 2 === 1 };
  });
}

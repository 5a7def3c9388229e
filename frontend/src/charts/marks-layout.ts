/** Where the labels of marks go. Pure. */

export interface Mark {
  x: number;
  label: string;
}

interface PlacedMark extends Mark {
  index: number;
  left: number;
  width: number;
  /** Reading to the left of its place, for want of room on the right. */
  flipped: boolean;
  /** Shown as a bare dot: its label would cover a neighbour's. */
  bare: boolean;
}

const DOT = 16;
const GAP = 6;

/** Labels in one line from left to right, each at its place; those that do not fit become dots. `widthOf` measures a label. */
export function placeMarks(marks: readonly Mark[], width: number, widthOf: (label: string) => number, maximum: number): PlacedMark[] {
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
  /** Every other block is shaded. */
  shaded: boolean;
}

/** Epochs as blocks in pixels; labels only where they fit, neighbours too narrow to be told apart as one. */
export function placeBlocks(spans: readonly { from: number; to: number; name: number }[], widthOf: (label: string) => number): Block[] {
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

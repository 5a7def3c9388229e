/** Squarified treemap (Bruls, Huizing, van Wijk): areas in proportion to sizes, rectangles close to squares. Pure. */

export interface Rectangle {
  index: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Item {
  index: number;
  area: number;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The worst aspect ratio of a strip of `areas` along a side. */
function worst(areas: readonly number[], side: number): number {
  const sum = areas.reduce((total, area) => total + area, 0);
  const [least, most] = [Math.min(...areas), Math.max(...areas)];
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

/** Lays a strip along the shorter side; gives the box that is left. */
function place(strip: readonly Item[], box: Box, out: Rectangle[]): Box {
  const sum = strip.reduce((total, { area }) => total + area, 0);
  const across = box.width >= box.height;
  const thickness = sum / (across ? box.height : box.width);
  let at = 0;
  for (const { index, area } of strip) {
    const length = area / thickness;
    out.push(
      across
        ? { index, x: box.x, y: box.y + at, width: thickness, height: length }
        : { index, x: box.x + at, y: box.y, width: length, height: thickness },
    );
    at += length;
  }
  return across
    ? { ...box, x: box.x + thickness, width: box.width - thickness }
    : { ...box, y: box.y + thickness, height: box.height - thickness };
}

/** Rectangles for the sizes above 0, largest first; `index` is that of the size. */
export function treemap(sizes: readonly number[], width: number, height: number): Rectangle[] {
  const total = sizes.reduce((sum, size) => sum + Math.max(size, 0), 0);
  if (total <= 0 || width <= 0 || height <= 0) return [];
  const items = sizes
    .map((size, index): Item => ({ index, area: (size / total) * width * height }))
    .filter(({ area }) => area > 0)
    .sort((a, b) => b.area - a.area);
  const out: Rectangle[] = [];
  let box: Box = { x: 0, y: 0, width, height };
  let strip: Item[] = [];
  for (const item of items) {
    const side = Math.min(box.width, box.height);
    const areas = strip.map(({ area }) => area);
    if (strip.length > 0 && worst([...areas, item.area], side) > worst(areas, side)) {
      box = place(strip, box, out);
      strip = [];
    }
    strip.push(item);
  }
  place(strip, box, out);
  return out;
}

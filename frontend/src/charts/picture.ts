/** The charts of a view as one picture: title, canvases below each other, legend. */

import { fillStyle, type BandFill } from "./paint";
import { FONT } from "./rules";

export interface LegendEntry {
  label: string;
  fill: Omit<BandFill, "muted">;
}

interface Inks {
  background: string;
  text: string;
}

const [GAP, HEAD, LINE, SWATCH] = [12, 40, 24, 13];

/** Where each entry goes, line by line; `widths` are those of the labels. Pure. */
export function placeLegend(widths: readonly number[], width: number): { x: number; line: number }[] {
  let [x, line] = [0, 0];
  return widths.map((label) => {
    const wanted = SWATCH + 6 + label + 18;
    if (x > 0 && x + wanted > width) [x, line] = [0, line + 1];
    const place = { x, line };
    x += wanted;
    return place;
  });
}

export function paintPicture(
  all: readonly HTMLCanvasElement[],
  title: string,
  legend: readonly LegendEntry[],
  inks: Inks,
): Promise<Blob | null> {
  const canvases = all.filter(({ width, height }) => width > 2 && height > 2);
  const out = document.createElement("canvas");
  const brush = out.getContext("2d");
  if (!brush || canvases.length === 0) return Promise.resolve(null);
  const wide = Math.max(...canvases.map(({ width }) => width));
  const small = `13px ${FONT}`;
  brush.font = small;
  const places = placeLegend(
    legend.map(({ label }) => brush.measureText(label).width),
    wide,
  );
  const lines = (places.at(-1)?.line ?? -1) + 1;
  out.width = wide + 2 * GAP;
  out.height = canvases.reduce((sum, { height }) => sum + height + GAP, HEAD + GAP) + lines * LINE;
  brush.fillStyle = inks.background;
  brush.fillRect(0, 0, out.width, out.height);
  brush.fillStyle = inks.text;
  brush.font = `500 18px ${FONT}`;
  brush.fillText(title, GAP, 28);
  let top = HEAD;
  for (const canvas of canvases) {
    brush.drawImage(canvas, GAP, top);
    top += canvas.height + GAP;
  }
  brush.font = small;
  legend.forEach(({ label, fill }, index) => {
    const { x, line } = places[index] ?? { x: 0, line: 0 };
    const [left, base] = [GAP + x, top + line * LINE];
    brush.fillStyle = fillStyle(brush, { ...fill, muted: false }, inks.background, 1, 1);
    brush.fillRect(left, base, SWATCH, SWATCH);
    brush.fillStyle = inks.text;
    brush.fillText(label, left + SWATCH + 6, base + SWATCH - 2);
  });
  return new Promise((resolve) => out.toBlob(resolve, "image/png"));
}

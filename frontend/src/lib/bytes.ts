/** Sizes as text, in IEC units. The cases in tests/golden/bytes.json are shared with Python. */

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;
export type Unit = (typeof UNITS)[number];

const sizeOf = (index: number): number => 2 ** (10 * index);

/** Halves round away from zero; `figure` is never negative here. */
const roundTo = (figure: number, decimals: number): number => Math.floor(figure * 10 ** decimals + 0.5) / 10 ** decimals;

/** The figure with two or three significant digits, as text and as the number that the text says. */
function figureText(figure: number, index: number, forced: boolean): { text: string; value: number } {
  if (index === 0 || roundTo(figure, 1) >= 100) {
    const value = roundTo(figure, 0);
    return { text: String(value), value };
  }
  if (!forced || roundTo(figure, 2) >= 1) {
    const value = roundTo(figure, 1);
    return { text: value.toFixed(1), value };
  }
  const value = roundTo(figure, 2);
  if (figure === 0) return { text: "0", value };
  return { text: value === 0 ? "<0.01" : value.toFixed(2), value };
}

/** The unit in which `bytes` is shown when none is forced. */
export function unitOf(bytes: number): Unit {
  const size = Math.abs(bytes);
  let index = 0;
  while (index < UNITS.length - 1 && figureText(size / sizeOf(index), index, false).value >= 1024) index += 1;
  return UNITS[index] as Unit;
}

/** The first figure of six digits. */
const LONG = 100_000;

/** Whether a figure has six digits or more in a unit, though not in a larger one. */
const isLong = (bytes: number, index: number): boolean =>
  index < UNITS.length - 1 && figureText(Math.abs(bytes) / sizeOf(index), index, true).value >= LONG;

/** Only the figure, for columns whose header or last cell names the unit; one that would be long in it has its own: "64.0 GiB". */
export function formatFigure(bytes: number, unit: Unit): string {
  const index = UNITS.indexOf(unit);
  if (isLong(bytes, index)) return formatBytes(bytes);
  const { text } = figureText(Math.abs(bytes) / sizeOf(index), index, true);
  if (bytes >= 0) return text;
  return text.startsWith("<") ? `>-${text.slice(1)}` : `-${text}`;
}

/** "14.2 GiB"; with `unit`, in that unit unless the figure would be long. */
export function formatBytes(bytes: number, unit: Unit | null = null): string {
  if (unit !== null && !isLong(bytes, UNITS.indexOf(unit))) return `${formatFigure(bytes, unit)} ${unit}`;
  const chosen = unitOf(bytes);
  const index = UNITS.indexOf(chosen);
  const { text } = figureText(Math.abs(bytes) / sizeOf(index), index, false);
  return `${bytes < 0 ? "-" : ""}${text} ${chosen}`;
}

/** "+1.5 MiB", "−3 B", "±0 B". */
export function formatDelta(bytes: number): string {
  if (bytes === 0) return "±0 B";
  return `${bytes > 0 ? "+" : "−"}${formatBytes(Math.abs(bytes))}`;
}

/** A difference in a column, from the text of its magnitude: "▲ +1.5", "▼ −3", "▲ <0.01", "±0". */
export function signedFigure(bytes: number, magnitude: string): string {
  if (bytes === 0) return "±0";
  const [arrow, sign] = bytes > 0 ? ["▲", "+"] : ["▼", "−"];
  return `${arrow} ${magnitude.startsWith("<") ? "" : sign}${magnitude}`;
}

/** Every byte: "734,003,200 B". */
export function formatExact(bytes: number): string {
  return `${bytes < 0 ? "-" : ""}${formatCount(Math.abs(bytes))} B`;
}

/** Whole numbers with thousands separators, the same in every locale. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** "0x7f3a5c000100" */
export const addressText = (address: number): string => `0x${address.toString(16)}`;

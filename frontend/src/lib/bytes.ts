/**
 * Sizes, shares, times and tables as text. The sizes in tests/golden/bytes.json are shared with
 * Python.
 */

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;
export type Unit = (typeof UNITS)[number];

/** The bytes of some parts together. */
export const totalBytes = (parts: readonly { bytes: number }[]): number =>
  parts.reduce((sum, { bytes }) => sum + bytes, 0);

/** The bytes by a key, in the order in which the keys come. */
export function sumsBy<Part, Key>(
  parts: Iterable<Part>,
  keyOf: (part: Part) => Key,
  bytesOf: (part: Part) => number,
): Map<Key, number> {
  const sums = new Map<Key, number>();
  for (const part of parts) sums.set(keyOf(part), (sums.get(keyOf(part)) ?? 0) + bytesOf(part));
  return sums;
}

/** The parts by a key, in their order. */
export function grouped<Part, Key>(
  parts: Iterable<Part>,
  keyOf: (part: Part) => Key,
): Map<Key, Part[]> {
  const groups = new Map<Key, Part[]>();
  for (const part of parts) {
    const own = groups.get(keyOf(part));
    if (own) own.push(part);
    else groups.set(keyOf(part), [part]);
  }
  return groups;
}

/** Compares parts by their bytes. */
export const largestFirst = (a: { bytes: number }, b: { bytes: number }): number =>
  b.bytes - a.bytes;

const sizeOf = (index: number): number => 2 ** (10 * index);

/** Halves round away from zero; `figure` is never negative here. */
const roundTo = (figure: number, decimals: number): number =>
  Math.floor(figure * 10 ** decimals + 0.5) / 10 ** decimals;

/**
 * The figure with two or three significant digits, as text and as the number that the text says.
 */
function figureText(
  figure: number,
  index: number,
  forced: boolean,
): { text: string; value: number } {
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

export function unitOf(bytes: number): Unit {
  const size = Math.abs(bytes);
  let index = 0;
  while (index < UNITS.length - 1 && figureText(size / sizeOf(index), index, false).value >= 1024)
    index += 1;
  return UNITS[index] as Unit;
}

const LONG = 100_000;

/** Whether a figure has six digits or more in a unit, though not in a larger one. */
const isLong = (bytes: number, index: number): boolean =>
  index < UNITS.length - 1 &&
  figureText(Math.abs(bytes) / sizeOf(index), index, true).value >= LONG;

/**
 * Only the figure, for columns whose header or last cell names the unit; one that would be long in
 * it has its own: "64.0 GiB".
 */
export function formatFigure(bytes: number, unit: Unit): string {
  const index = UNITS.indexOf(unit);
  if (isLong(bytes, index)) return formatBytes(bytes);
  const { text } = figureText(Math.abs(bytes) / sizeOf(index), index, true);
  if (bytes >= 0) return text;
  return text.startsWith("<") ? `>-${text.slice(1)}` : `-${text}`;
}

/** "14.2 GiB"; with `unit`, in that unit unless the figure would be long. */
export function formatBytes(bytes: number, unit: Unit | null = null): string {
  if (unit !== null && !isLong(bytes, UNITS.indexOf(unit)))
    return `${formatFigure(bytes, unit)} ${unit}`;
  const chosen = unitOf(bytes);
  const index = UNITS.indexOf(chosen);
  const { text } = figureText(Math.abs(bytes) / sizeOf(index), index, false);
  return `${bytes < 0 ? "-" : ""}${text} ${chosen}`;
}

/** "14.2 GiB", or "unknown". */
export const formatKnown = (bytes: number | null): string =>
  bytes === null ? "unknown" : formatBytes(bytes);

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

const COUNTS = new Intl.NumberFormat("en");

export const formatExact = (bytes: number): string =>
  `${bytes < 0 ? "-" : ""}${formatCount(Math.abs(bytes))} B`;

/** Whole numbers with thousands separators, the same in every locale. */
export const formatCount = (count: number): string => COUNTS.format(Math.round(count));

export const addressText = (address: number): string => `0x${address.toString(16)}`;

/** The share of a whole, 0 to 1; null if one of them is unknown or the whole is nothing. */
export const shareOf = (part: number | null, whole: number | null): number | null =>
  whole && part !== null ? part / whole : null;

/** Share of a whole below which rows of a table are folded into one. */
const MINOR_SHARE = 0.01;

/** Whether a part is so small that its row may be folded; not if it is unknown. */
export const isMinor = (part: number | null, whole: number): boolean =>
  part !== null && (part === 0 || Math.abs(part) < MINOR_SHARE * whole);

export function formatShare(share: number): string {
  const percent = share * 100;
  if (percent > 0 && percent < 0.05) return "<0.1 %";
  return `${percent !== 0 && Math.abs(percent) < 9.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

export const unbroken = (sentence: string): string =>
  sentence.replace(/(\d) (?=%|[KMGTP]iB\b|B\b)/g, "$1\u00a0");

/**
 * The parts of a sentence in order: plain text, and code from between two backticks. A backtick
 * without a partner is text.
 */
export const codeSpans = (sentence: string): { text: string; code: boolean }[] =>
  sentence
    .split(/`([^`]+)`/)
    .map((text, index) => ({ text, code: index % 2 === 1 }))
    .filter(({ text }) => text !== "");

/** For attributes, which cannot set code as code. */
export const withoutTicks = (sentence: string): string => sentence.replaceAll("`", "");

/** Seconds since a start: "0 s", "1.5 s", "12 s", "3 m 20 s", "2 h 05 m", "3 d 4 h". */
export function formatDuration(seconds: number): string {
  const sign = seconds < 0 ? "-" : "";
  const size = Math.abs(seconds);
  if (size < 9.95) return `${sign}${Number(size.toFixed(1))} s`;
  const whole = Math.round(size);
  if (whole < 60) return `${sign}${whole} s`;
  const pad = (value: number): string => String(value).padStart(2, "0");
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86400)
    return `${sign}${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} m`;
  return `${sign}${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Times within a step: "0 ms", "850 µs", "12.3 ms", "1.25 s". */
export function formatMilliseconds(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size === 0) return "0 ms";
  const [figure, unit] =
    size < 1
      ? [milliseconds * 1000, "µs"]
      : size < 1000
        ? [milliseconds, "ms"]
        : [milliseconds / 1000, "s"];
  return `${Number(figure.toPrecision(3))} ${unit}`;
}

/** "2026-11-29 09:22:46", which is how Swedes write the local time. */
export const formatWallTime = (seconds: number): string =>
  new Date(seconds * 1000).toLocaleString("sv");

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`;

type Cell = string | number | boolean | null;

export interface Table {
  columns: string[];
  rows: Cell[][];
}

export const tableOf = <T>(
  items: readonly T[],
  columns: Record<string, (item: T) => Cell>,
): Table => ({
  columns: Object.keys(columns),
  rows: items.map((item) => Object.values(columns).map((of) => of(item))),
});

/**
 * Prefixes text that a spreadsheet would read as a formula with an apostrophe: names come from
 * strangers.
 */
function csvCell(cell: Cell): string {
  if (cell === null || (typeof cell === "number" && !Number.isFinite(cell))) return "";
  if (typeof cell !== "string") return String(cell);
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const toCsv = ({ columns, rows }: Table): string =>
  [columns, ...rows].map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join("");

export function toJson({ columns, rows }: Table): string {
  const known = (cell: Cell | undefined): Cell =>
    cell === undefined || (typeof cell === "number" && !Number.isFinite(cell)) ? null : cell;
  return `${JSON.stringify(
    rows.map((cells) =>
      Object.fromEntries(columns.map((name, index) => [name, known(cells[index])])),
    ),
    null,
    1,
  )}\n`;
}

export const fileName = (text: string, ending: string): string =>
  `${
    text
      .replace(/[^\p{L}\p{N}._-]+/gu, "_")
      .replace(/^[._]+/, "")
      .slice(0, 120) || "memory"
  }.${ending}`;

/** What no XML document may contain: control characters, halves of surrogate pairs. */
const NOT_IN_XML = /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu;

export const wellFormed = (text: string): string => text.replace(NOT_IN_XML, "\ufffd");

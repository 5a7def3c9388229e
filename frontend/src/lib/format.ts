/** Shares and times as text. */

/** The share of a whole, 0 to 1; null if one of them is unknown or the whole is nothing. */
export const shareOf = (part: number | null, whole: number | null): number | null => (whole && part !== null ? part / whole : null);

/** Share of a whole below which rows of a table are folded into one. */
const MINOR_SHARE = 0.01;

/** Whether a part is so small that its row may be folded; not if it is unknown. */
export const isMinor = (part: number | null, whole: number): boolean =>
  part !== null && (part === 0 || Math.abs(part) < MINOR_SHARE * whole);

/** "43 %", "0.4 %", "<0.1 %". */
export function formatShare(share: number): string {
  const percent = share * 100;
  if (percent > 0 && percent < 0.05) return "<0.1 %";
  return `${percent !== 0 && Math.abs(percent) < 9.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

/** A sentence whose figures stay on one line with their units. */
export const unbroken = (sentence: string): string => sentence.replace(/(\d) (?=%|[KMGTP]iB\b|B\b)/g, "$1\u00a0");

/** The parts of a sentence in order: plain text, and code from between two backticks. A backtick without a partner is text. */
export const codeSpans = (sentence: string): { text: string; code: boolean }[] =>
  sentence
    .split(/`([^`]+)`/)
    .map((text, index) => ({ text, code: index % 2 === 1 }))
    .filter(({ text }) => text !== "");

/** Seconds since a start: "0 s", "1.5 s", "12 s", "3 m 20 s", "2 h 05 m", "3 d 4 h". */
export function formatDuration(seconds: number): string {
  const sign = seconds < 0 ? "-" : "";
  const size = Math.abs(seconds);
  if (size < 9.95) return `${sign}${Number(size.toFixed(1))} s`;
  const whole = Math.round(size);
  if (whole < 60) return `${sign}${whole} s`;
  const pad = (value: number): string => String(value).padStart(2, "0");
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86400) return `${sign}${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} m`;
  return `${sign}${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Times within a step: "0 ms", "850 µs", "12.3 ms", "1.25 s". */
export function formatMilliseconds(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size === 0) return "0 ms";
  const [figure, unit] = size < 1 ? [milliseconds * 1000, "µs"] : size < 1000 ? [milliseconds, "ms"] : [milliseconds / 1000, "s"];
  return `${Number(figure.toPrecision(3))} ${unit}`;
}

/** Local time, to the second: "2026-09-21 13:13:13". */
export function formatWallTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  const pad = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** "1 step", "2 steps". */
export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

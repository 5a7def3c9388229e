/** Tables as text, for files that people download. */

export type Cell = string | number | boolean | null;

export interface Table {
  columns: string[];
  rows: Cell[][];
}

/** Prefixes text that a spreadsheet would read as a formula with an apostrophe: names come from strangers. */
function csvCell(cell: Cell): string {
  if (cell === null || (typeof cell === "number" && !Number.isFinite(cell))) return "";
  if (typeof cell !== "string") return String(cell);
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv({ columns, rows }: Table): string {
  return [columns, ...rows].map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join("");
}

/** One object per row; unknown values are null. */
export function toJson({ columns, rows }: Table): string {
  const known = (cell: Cell | undefined): Cell =>
    cell === undefined || (typeof cell === "number" && !Number.isFinite(cell)) ? null : cell;
  return `${JSON.stringify(
    rows.map((cells) => Object.fromEntries(columns.map((name, index) => [name, known(cells[index])]))),
    null,
    1,
  )}\n`;
}

/** A file name from any text. */
export const fileName = (text: string, ending: string): string =>
  `${
    text
      .replace(/[^\p{L}\p{N}._-]+/gu, "_")
      .replace(/^[._]+/, "")
      .slice(0, 120) || "memory"
  }.${ending}`;

/** The binary answers: a length, a JSON head, zero bytes up to a multiple of 8, then float64 columns. */

import { list, number, object, text, type Check } from "./check";

const head = object<{ rows: number; columns: string[] }>({ rows: number, columns: list(text) });

interface Columns {
  rows: number;
  /** The head's JSON, columns and all, still to be checked by the caller. */
  head: unknown;
  /** A column by name; all NaN if the answer has none of that name. */
  column(name: string): Float64Array;
}

export function decodeColumns(buffer: ArrayBuffer): Columns {
  const broken = (why: string): Error => new Error(`The server's answer is damaged: ${why}.`);
  if (buffer.byteLength < 4) throw broken("it is too short");
  const length = new DataView(buffer).getUint32(0, true);
  if (4 + length > buffer.byteLength) throw broken("its header is truncated");
  const json: unknown = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const { rows, columns } = head(json, "columns");
  const start = Math.ceil((4 + length) / 8) * 8;
  if (start + rows * columns.length * 8 > buffer.byteLength) throw broken("its columns are truncated");
  const places = new Map(columns.map((name, index) => [name, start + index * rows * 8]));
  return {
    rows,
    head: json,
    column(name) {
      const place = places.get(name);
      return place === undefined ? new Float64Array(rows).fill(NaN) : new Float64Array(buffer, place, rows);
    },
  };
}

/** An answer's checked head, its rows and its columns of these names; and the columns numbered under a name, as "group/0". */
export function readColumns<Head extends object, Name extends string>(
  buffer: ArrayBuffer,
  where: string,
  check: Check<Head>,
  names: readonly Name[],
) {
  const read = decodeColumns(buffer);
  const columns = Object.fromEntries(names.map((name) => [name, read.column(name)])) as Record<Name, Float64Array>;
  const numbered = (name: string, of: readonly unknown[]): Float64Array[] => of.map((_, index) => read.column(`${name}/${index}`));
  return { answer: { ...check(read.head, where), rows: read.rows, ...columns }, numbered };
}

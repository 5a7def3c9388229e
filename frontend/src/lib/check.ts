/** Checks of the server's answers, so that all later code can trust their types. */

export type Check<T> = (value: unknown, where: string) => T;

export class WrongAnswer extends Error {
  constructor(where: string, expected: string, value: unknown) {
    super(
      `The server's answer is invalid: ${where} should be ${expected}, got ${describe(value)}.`,
    );
    this.name = "WrongAnswer";
  }
}

function describe(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

export const text: Check<string> = (value, where) => {
  if (typeof value !== "string") throw new WrongAnswer(where, "a string", value);
  return value;
};

export const number: Check<number> = (value, where) => {
  if (typeof value !== "number" || !Number.isFinite(value))
    throw new WrongAnswer(where, "a number", value);
  return value;
};

export const flag: Check<boolean> = (value, where) => {
  if (typeof value !== "boolean") throw new WrongAnswer(where, "true or false", value);
  return value;
};

export const maybe =
  <T>(check: Check<T>): Check<T | null> =>
  (value, where) =>
    value === null || value === undefined ? null : check(value, where);

export const list =
  <T>(check: Check<T>): Check<T[]> =>
  (value, where) => {
    if (!Array.isArray(value)) throw new WrongAnswer(where, "a list", value);
    return value.map((item, index) => check(item, `${where}[${index}]`));
  };

/** A list of numbers, which may be long: no text is made for each of them. */
export const numbers: Check<number[]> = (value, where) =>
  Array.isArray(value) && value.every((item) => Number.isFinite(item))
    ? (value as number[])
    : list(number)(value, where);

export const oneOf =
  <T extends string>(allowed: readonly T[]): Check<T> =>
  (value, where) => {
    const found = allowed.find((item) => item === value);
    if (found === undefined) throw new WrongAnswer(where, `one of ${allowed.join(", ")}`, value);
    return found;
  };

export const object =
  <T extends object>(fields: { [K in keyof T]: Check<T[K]> }): Check<T> =>
  (value, where) => {
    if (typeof value !== "object" || value === null)
      throw new WrongAnswer(where, "an object", value);
    const given = value as Record<string, unknown>;
    const result = {} as T;
    for (const name of Object.keys(fields) as (keyof T & string)[]) {
      result[name] = fields[name](given[name], `${where}.${name}`);
    }
    return result;
  };

const head = object<{ rows: number; columns: string[] }>({ rows: number, columns: list(text) });

interface Columns {
  rows: number;
  /** The head's JSON, columns and all, still to be checked by the caller. */
  head: unknown;
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
  if (start + rows * columns.length * 8 > buffer.byteLength)
    throw broken("its columns are truncated");
  const places = new Map(columns.map((name, index) => [name, start + index * rows * 8]));
  return {
    rows,
    head: json,
    column(name) {
      const place = places.get(name);
      return place === undefined
        ? new Float64Array(rows).fill(NaN)
        : new Float64Array(buffer, place, rows);
    },
  };
}

/**
 * An answer's checked head, its rows and its columns of these names; and the columns numbered under
 * a name, as "group/0".
 */
export function readColumns<Head extends object, Name extends string>(
  buffer: ArrayBuffer,
  where: string,
  check: Check<Head>,
  names: readonly Name[],
) {
  const read = decodeColumns(buffer);
  const columns = Object.fromEntries(names.map((name) => [name, read.column(name)])) as Record<
    Name,
    Float64Array
  >;
  const numbered = (name: string, of: readonly unknown[]): Float64Array[] =>
    of.map((_, index) => read.column(`${name}/${index}`));
  return { answer: { ...check(read.head, where), rows: read.rows, ...columns }, numbered };
}

export const figures: Check<Record<string, number>> = (value, where) => {
  const given = object<Record<string, number>>({})(value, where);
  for (const [name, one] of Object.entries(value as object))
    given[name] = number(one, `${where}.${name}`);
  return given;
};

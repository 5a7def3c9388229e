import { describe, expect, it } from "vitest";

import { number, object } from "../../src/api/check";
import { decodeColumns, readColumns } from "../../src/api/columns";

/** An answer as the server writes it: the head's length, the head, zero bytes up to a multiple of 8, columns. */
function answer(fields: object, columns: Record<string, number[]>, rows = Object.values(columns)[0]?.length ?? 0): ArrayBuffer {
  const head = new TextEncoder().encode(JSON.stringify({ ...fields, rows, columns: Object.keys(columns) }));
  const start = Math.ceil((4 + head.length) / 8) * 8;
  const values = Object.values(columns).flat();
  const bytes = new Uint8Array(start + 8 * values.length);
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(head, 4);
  bytes.set(new Uint8Array(Float64Array.from(values).buffer), start);
  return bytes.buffer;
}

const COLUMNS = { step: [1, 2, 3], "peak/0": [4, 5, 6], "peak/1": [7, NaN, 9] };

describe("a binary answer", () => {
  // Heads of every length modulo 8, so that some need zero bytes before the columns and some need none.
  it.each([...Array(9).keys()])("has its head and its columns, behind %i more letters", (letters) => {
    const read = decodeColumns(answer({ name: "x".repeat(letters) }, COLUMNS));
    expect(read.rows).toBe(3);
    expect(read.head).toMatchObject({ name: "x".repeat(letters) });
    for (const [name, values] of Object.entries(COLUMNS)) expect([...read.column(name)]).toEqual(values);
    expect([...read.column("other")]).toEqual([NaN, NaN, NaN]);
  });

  it("may have no rows", () => {
    expect(decodeColumns(answer({}, { step: [] })).column("step").length).toBe(0);
    expect(decodeColumns(answer({}, {})).rows).toBe(0);
  });

  it("is refused if it is cut anywhere", () => {
    const whole = answer({ name: "exp" }, COLUMNS);
    for (let length = 0; length < whole.byteLength; length += 1) {
      expect(() => decodeColumns(whole.slice(0, length))).toThrow(
        /The server's answer is damaged: (it is too short|its \w+ (is|are) truncated)\./,
      );
    }
  });

  it("gives its checked head, named columns and numbered ones", () => {
    const { answer: read, numbered } = readColumns(answer({ total: 7 }, COLUMNS), "it", object<{ total: number }>({ total: number }), [
      "step",
      "peak/1",
    ]);
    expect([read.total, read.rows, [...read.step], [...read["peak/1"]]]).toEqual([7, 3, [1, 2, 3], [7, NaN, 9]]);
    expect(numbered("peak", ["a", "b"]).map((column) => [...column])).toEqual([COLUMNS["peak/0"], COLUMNS["peak/1"]]);
    expect(() => readColumns(answer({ total: "7" }, COLUMNS), "it", object<{ total: number }>({ total: number }), [])).toThrow("it");
  });
});

import { describe, expect, it } from "vitest";

import {
  parseDeviceMemory,
  parseFixes,
  parseMap,
  parseMaps,
  parseOoms,
  parseRuns,
  parseSnapshots,
} from "../api/answers-cases";
import {
  WrongAnswer,
  flag,
  list,
  maybe,
  number,
  numbers,
  object,
  oneOf,
  text,
  decodeColumns,
  readColumns,
} from "../../src/lib/check";

/**
 * An answer in the wire's binary form, written by hand: length, head, zero bytes up to a multiple
 * of 8, columns.
 */
function binary(head: object, columns: readonly (readonly number[])[], rows: number): ArrayBuffer {
  const json = new TextEncoder().encode(JSON.stringify(head));
  const start = 8 * Math.ceil((4 + json.length) / 8);
  const bytes = new Uint8Array(start + 8 * rows * columns.length);
  new DataView(bytes.buffer).setUint32(0, json.length, true);
  bytes.set(json, 4);
  columns
    .flat()
    .forEach((value, index) =>
      new DataView(bytes.buffer).setFloat64(start + 8 * index, value, true),
    );
  return bytes.buffer;
}

describe("checks", () => {
  it("let good values through unchanged", () => {
    const check = object<{ name: string; sizes: number[]; kind: "a" | "b"; maybe: boolean | null }>(
      { name: text, sizes: list(number), kind: oneOf(["a", "b"]), maybe: maybe(flag) },
    );
    expect(check({ name: "", sizes: [0, -1.5], kind: "b", maybe: false, extra: 1 }, "x")).toEqual({
      name: "",
      sizes: [0, -1.5],
      kind: "b",
      maybe: false,
    });
    expect(check({ name: "n", sizes: [], kind: "a" }, "x").maybe).toBeNull();
  });

  it.each<[() => unknown, string]>([
    [() => text(3, "runs[0].run"), "runs[0].run should be a string, got 3"],
    [() => number("3", "n"), 'n should be a number, got "3"'],
    [() => number(Infinity, "n"), "n should be a number, got null"],
    [() => flag(0, "f"), "f should be true or false, got 0"],
    [() => list(number)({}, "l"), "l should be a list, got {}"],
    [() => list(number)([1, null], "l"), "l[1] should be a number, got null"],
    [() => oneOf(["a", "b"])("c", "o"), 'o should be one of a, b, got "c"'],
    [() => object({ a: text })([], "x"), "x.a should be a string, got undefined"],
    [() => object({ a: text })(null, "x"), "x should be an object, got null"],
    [
      () => text({ long: "y".repeat(100) }, "t"),
      `t should be a string, got {"long":"${"y".repeat(51)}…`,
    ],
  ])("refuse others and name the place", (run, message) => {
    expect(run).toThrow(WrongAnswer);
    expect(run).toThrow(`The server's answer is invalid: ${message}`);
  });
});

describe("binary answers", () => {
  const head = { rows: 2, columns: ["step", "group/0", "group/1"], run: "r" };
  const answer = binary(
    head,
    [
      [3, 4],
      [10, NaN],
      [0.5, 7],
    ],
    2,
  );

  it("are read in any alignment of the head", () => {
    for (const run of ["", "a", "ab", "abc", "abcdefg", "ü"]) {
      const read = decodeColumns(
        binary(
          { ...head, run },
          [
            [3, 4],
            [10, NaN],
            [0.5, 7],
          ],
          2,
        ),
      );
      expect([...read.column("step"), ...read.column("group/1")]).toEqual([3, 4, 0.5, 7]);
    }
  });

  it("give checked fields, named and numbered columns", () => {
    const { answer: fields, numbered } = readColumns(
      answer,
      "x",
      object<{ run: string }>({ run: text }),
      ["step", "missing"],
    );
    expect([fields.run, fields.rows, [...fields.step], [...fields.missing]]).toEqual([
      "r",
      2,
      [3, 4],
      [NaN, NaN],
    ]);
    expect(numbered("group", ["a", "b"]).map((column) => [...column])).toEqual([
      [10, NaN],
      [0.5, 7],
    ]);
  });

  it("are refused where something is missing", () => {
    expect(() => decodeColumns(new ArrayBuffer(3))).toThrow("it is too short");
    expect(() => decodeColumns(answer.slice(0, 20))).toThrow("its header is truncated");
    expect(() => decodeColumns(answer.slice(0, answer.byteLength - 1))).toThrow(
      "its columns are truncated",
    );
    expect(() => readColumns(answer, "x", object<{ run: number }>({ run: number }), [])).toThrow(
      "x.run should be a number",
    );
  });
});

describe("the names on the wire", () => {
  const map = {
    step: null,
    phase: null,
    device: "GPU:0",
    wall_time: 1,
    chunks: 1,
    in_use_bytes: null,
    pool_bytes: 512,
    capacity_bytes: null,
    complete: true,
    not_available: [],
    regions: [],
  };
  const oom = {
    status: "failed",
    device: "GPU:0",
    wall_time: 1,
    verdict: "capacity",
    reason: "",
    ledger: [],
    not_available: [],
    request_ledger: [],
    largest_tensors: [],
    request: null,
  };

  it("of memory maps", () => {
    const summary = {
      free_bytes: 0,
      largest_free_bytes: 0,
      rounding_bytes: 0,
      owned_bytes: 0,
      owner_unknown_bytes: 512,
      unknown_bytes: 0,
      bins: [],
    };
    const head = {
      ...map,
      rows: 1,
      columns: ["bytes"],
      run: "r",
      states: ["free"],
      sources: [],
      owners: [],
      regions: [],
    };
    const blocking = [{ owner: -1, chunks: 1, bytes: 2, joined_bytes: 3 }];
    const read = parseMap(
      binary({ ...head, summary: { ...summary, blocking_chunks: blocking } }, [[512]], 1),
    );
    expect([
      read.summary.blocking_chunks,
      read.summary.owner_unknown_bytes,
      [...read.bytes],
    ]).toEqual([blocking, 512, [512]]);
    expect(() =>
      parseMap(binary({ ...head, summary: { ...summary, pins: blocking } }, [[512]], 1)),
    ).toThrow("map.summary.blocking_chunks");
    expect(parseMaps({ run: "r", maps: [map] })).toEqual([map]);
  });

  it("of post-mortems, where most figures may be missing", () => {
    expect(parseOoms({ run: "r", ooms: [oom] })).toMatchObject([
      { status: "failed", step: null, free_bytes: null },
    ]);
    expect(() => parseOoms({ run: "r", ooms: [{ ...oom, verdict: "bad luck" }] })).toThrow(
      "oom.ooms[0].verdict",
    );
  });

  it("of fixes, or of the reason why there are none", () => {
    const conditions = {
      batch_size: null,
      capacity_bytes: 9,
      freeze: null,
      budget_bytes: null,
      peak_bytes: 8,
      code: "limit(9)",
    };
    const fixes = [
      {
        kind: "limit",
        change: "Capacity 9 B",
        sentence: "More memory.",
        enough: true,
        ...conditions,
      },
    ];
    expect(parseFixes({ run: "r", oom: 0, fixes, note: null })).toMatchObject({
      fixes,
      note: null,
    });
    expect(parseFixes({ run: "r", oom: 0, fixes: [], note: "Unknown." })).toMatchObject({
      fixes: [],
      note: "Unknown.",
    });
    expect(() => parseFixes({ run: "r", oom: 0, note: null })).toThrow(
      "fixes.fixes should be a list",
    );
  });

  it("of the device's memory", () => {
    const memory = {
      run: "r",
      device: "d",
      step: 1,
      phase: "train",
      at_failure: false,
      in_use_bytes: 1,
      notes: [],
    };
    const segments = [{ part: "device_free", bytes: 1 }];
    expect(parseDeviceMemory({ ...memory, segments }).segments).toEqual([
      { part: "device_free", category: null, trainable: null, bytes: 1 },
    ]);
    expect(() =>
      parseDeviceMemory({ ...memory, segments: [{ part: "card_free", bytes: 1 }] }),
    ).toThrow("device_memory.segments[0].part");
  });

  it("of phases and modes", () => {
    const snapshot = {
      step: 1,
      phase: "predict",
      device: "d",
      mode: "xla",
      at_failure: false,
      wall_time: 0,
      in_use_bytes: 1,
      not_available: [],
    };
    expect(parseSnapshots({ run: "r", snapshots: [snapshot] })).toMatchObject([
      { phase: "predict", mode: "xla", pool_bytes: null },
    ]);
    expect(() =>
      parseSnapshots({ run: "r", snapshots: [{ ...snapshot, phase: "build" }] }),
    ).toThrow("train, validation, predict");
    expect(() => parseRuns({ plugin_version: "1", runs: {} })).toThrow(
      "runs.runs should be a list",
    );
  });
});

describe("a list of numbers", () => {
  it("is checked like any other list", () => {
    expect(numbers([1, 2.5], "l")).toEqual([1, 2.5]);
    for (const wrong of [{}, [1, null], [1, "2"], [NaN]]) {
      let said = "";
      try {
        list(number)(wrong, "l");
      } catch (error) {
        said = String(error);
      }
      expect(said).not.toBe("");
      expect(() => numbers(wrong, "l")).toThrow(said.replace(/^\w+: /, ""));
    }
  });
});

/**
 * An answer as the server writes it: the head's length, the head, zero bytes up to a multiple of 8,
 * columns.
 */
function answer(
  fields: object,
  columns: Record<string, number[]>,
  rows = Object.values(columns)[0]?.length ?? 0,
): ArrayBuffer {
  const head = new TextEncoder().encode(
    JSON.stringify({ ...fields, rows, columns: Object.keys(columns) }),
  );
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
  // Heads of every length modulo 8, so that some need zero bytes before the columns and some need
  // none.
  it.each([...Array(9).keys()])(
    "has its head and its columns, behind %i more letters",
    (letters) => {
      const read = decodeColumns(answer({ name: "x".repeat(letters) }, COLUMNS));
      expect(read.rows).toBe(3);
      expect(read.head).toMatchObject({ name: "x".repeat(letters) });
      for (const [name, values] of Object.entries(COLUMNS))
        expect([...read.column(name)]).toEqual(values);
      expect([...read.column("other")]).toEqual([NaN, NaN, NaN]);
    },
  );

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
    const { answer: read, numbered } = readColumns(
      answer({ total: 7 }, COLUMNS),
      "it",
      object<{ total: number }>({ total: number }),
      ["step", "peak/1"],
    );
    expect([read.total, read.rows, [...read.step], [...read["peak/1"]]]).toEqual([
      7,
      3,
      [1, 2, 3],
      [7, NaN, 9],
    ]);
    expect(numbered("peak", ["a", "b"]).map((column) => [...column])).toEqual([
      COLUMNS["peak/0"],
      COLUMNS["peak/1"],
    ]);
    expect(() =>
      readColumns(
        answer({ total: "7" }, COLUMNS),
        "it",
        object<{ total: number }>({ total: number }),
        [],
      ),
    ).toThrow("it");
  });
});

import { describe, expect, it } from "vitest";

import { parseSnapshot } from "../api/answers-cases";
import {
  owners,
  MAX_GROUPS,
  heldTensors,
  holderOf,
  replayText,
  sizesText,
  totalsOf,
  topLayers,
  totalAt,
  type Activations,
} from "../../src/model/snapshot";
import type { HeldTensorGroup, LedgerRow, Snapshot } from "../../src/schema";

const row = (
  layer: string | null,
  category: LedgerRow["category"],
  trainable: boolean | null,
  bytes: number,
): LedgerRow => ({ layer, category, trainable, bytes, rounding_bytes: 0 });

describe("owners", () => {
  it("are layers by their sum, memory without a layer included", () => {
    const ledger = [
      row("a", "weights", true, 5),
      row(null, "inputs", null, 7),
      row("a", "activations", true, 3),
    ];
    expect(owners(ledger)).toEqual([
      { layer: "a", bytes: 8 },
      { layer: null, bytes: 7 },
    ]);
  });
});

const group = (bytes: number): HeldTensorGroup => ({
  shape: [bytes / 4],
  dtype: "float32",
  count: 1,
  bytes,
  held_by: null,
  line: null,
  retaining_path: null,
  category: "held_tensors",
});

const REPLAY = {
  addresses: 3079,
  of_addresses: 3080,
  chunks: 659,
  of_chunks: 659,
  peak_bytes: 4096,
};
const ANSWER = {
  run: "a",
  step: 3,
  phase: "train",
  device: "CPU:0",
  mode: "graph",
  at_failure: false,
  wall_time: 1,
  in_use_bytes: 4096,
  not_available: [],
  ledger: [],
  saved_for_backward: [],
  largest_tensors: [],
  held_tensors: [group(400)],
};

describe("heldTensors", () => {
  it("shows the largest groups and says how many more there are", () => {
    const sizes = Array.from({ length: MAX_GROUPS + 2 }, (_, index) => 4096 * (index + 1));
    const { groups, more } = heldTensors(sizes.map(group));
    expect(groups.map(({ bytes }) => bytes)).toEqual(sizes.slice(2).reverse());
    expect(more).toBe("and 2 more, 12.0 KiB");
  });

  it("says nothing of more if all are shown", () => {
    expect(heldTensors(Array.from({ length: MAX_GROUPS }, () => group(4))).more).toBeNull();
    expect(heldTensors([])).toEqual({ groups: [], more: null });
  });
});

describe("the holder of a tensor", () => {
  const [shape, dtype] = [[32, 10], "float32"];
  const own = { ...group(1280), shape, held_by: "list `history` in module __main__" };
  const path = "module __main__ › history (list) › [12]";

  it("is that of the only group of its shape and dtype, best by the path to it", () => {
    const others = [group(4), { ...own, dtype: "int32" }];
    expect(holderOf([...others, { ...own, retaining_path: path }], { shape, dtype })).toBe(path);
    expect(holderOf([...others, own], { shape, dtype })).toBe(own.held_by);
  });

  it("is unknown if there is no such group, or several", () => {
    expect(holderOf([group(4)], { shape, dtype })).toBeNull();
    expect(holderOf([own, { ...own, held_by: null }], { shape, dtype })).toBeNull();
  });
});

describe("texts", () => {
  it("writes shapes and the replay", () => {
    expect([sizesText([32, 10]), sizesText([7]), sizesText([])]).toEqual(["(32, 10)", "(7)", "()"]);
    expect(replayText(REPLAY)).toBe("replay: 3,079 of 3,080 addresses, 659 of 659 chunks");
  });
});

describe("parseSnapshot", () => {
  it("reads held tensors and the replay, which may be null", () => {
    expect(parseSnapshot({ ...ANSWER, replay: REPLAY })).toMatchObject({
      replay: REPLAY,
      held_tensors: [group(400)],
    });
    expect(parseSnapshot({ ...ANSWER, replay: null }).replay).toBeNull();
  });

  it("refuses others", () => {
    expect(() => parseSnapshot({ ...ANSWER, replay: { ...REPLAY, chunks: null } })).toThrow(
      "snapshot.replay.chunks",
    );
    expect(() =>
      parseSnapshot({ ...ANSWER, held_tensors: [{ ...group(4), shape: ["4"] }] }),
    ).toThrow("held_tensors[0].shape[0]");
    expect(() => parseSnapshot({ ...ANSWER, held_tensors: undefined })).toThrow(
      "snapshot.held_tensors",
    );
  });
});

const snapshot = (step: number, in_use_bytes: number, ledger: LedgerRow[]): Snapshot => ({
  run: "r",
  step,
  phase: "train",
  device: "GPU:0",
  mode: "graph",
  batch_size: 32,
  at_failure: false,
  wall_time: 10 * step,
  in_use_bytes,
  pool_bytes: null,
  largest_free_bytes: null,
  capacity_bytes: null,
  fragmentation: null,
  rounding_bytes: null,
  not_available: [],
  replay: null,
  ledger,
  saved_for_backward: [],
  held_tensors: [],
  largest_tensors: [],
});

describe("totals of ledgers", () => {
  const snapshots = [
    snapshot(7, 60, [row("a", "weights", true, 40), row(null, "inputs", null, 20)]),
    snapshot(2, 35, [
      row("a", "weights", false, 10),
      row("a", "weights", false, 5),
      row("b", "weights", true, 20),
    ]),
  ];
  const place = { run: "r", device: "GPU:0", phase: "train" } as const;

  it("are ordered by step, split by category and trainability", () => {
    const totals = totalsOf(snapshots, null, place);
    expect([
      totals.rows,
      [...totals.step],
      [...totals.wall_time],
      [...totals.in_use_bytes],
    ]).toEqual([2, [2, 7], [20, 70], [35, 60]]);
    expect(totals.groups).toEqual([
      { category: "weights", trainable: false },
      { category: "weights", trainable: true },
      { category: "inputs", trainable: null },
    ]);
    expect(totals.bytes.map((bytes) => [...bytes])).toEqual([
      [15, 0],
      [20, 40],
      [0, 20],
    ]);
  });

  it("are those of one layer, at every step", () => {
    const totals = totalsOf(snapshots, "b", place);
    expect([
      [...totals.step],
      totals.groups.length,
      totals.bytes.map((bytes) => [...bytes]),
    ]).toEqual([[2, 7], 1, [[20, 0]]]);
    expect(totalsOf(snapshots, "none", place).groups).toEqual([]);
  });
});

const column = (...values: number[]): Float64Array => Float64Array.from(values);

describe("recorded activations", () => {
  const ACTIVATIONS: Activations = {
    run: "r",
    rows: 3,
    total_rows: 3,
    layers: ["a", "b", "c", "d"],
    step: column(0, 1, 2),
    wall_time: column(0, 1, 2),
    bytes: [column(1, 2, NaN), column(9, NaN, 1), column(NaN, 4, NaN), column(3, 3, NaN)],
  };

  it("are the largest layers by their maximum, and the sum of the others", () => {
    const top = topLayers(ACTIVATIONS, 1);
    expect(top.map(({ layer, count, max_bytes }) => [layer, count, max_bytes])).toEqual([
      ["b", 1, 9],
      [null, 3, 9],
    ]);
    expect([...(top[1]?.bytes ?? [])]).toEqual([4, 9, NaN]);
    expect([0, 1, 2].map((row) => totalAt(top, row))).toEqual([13, 9, 1]);
  });

  it("need no band for the others if there is only one", () => {
    expect(topLayers(ACTIVATIONS, 3).map(({ layer }) => layer)).toEqual(["b", "c", "d", "a"]);
    expect(totalAt(topLayers({ ...ACTIVATIONS, layers: [], bytes: [] }, 3), 0)).toBeNull();
  });
});

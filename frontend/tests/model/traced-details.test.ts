import { describe, expect, it } from "vitest";

import { parseSnapshot } from "../../src/api/answers";
import type { HeldTensorGroup } from "../../src/model/snapshot";
import { MAX_GROUPS, heldTensors, holderOf, replayText, sizesText } from "../../src/model/traced-details";

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

const REPLAY = { addresses: 3079, of_addresses: 3080, chunks: 659, of_chunks: 659, peak_bytes: 4096 };
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
    expect(parseSnapshot({ ...ANSWER, replay: REPLAY })).toMatchObject({ replay: REPLAY, held_tensors: [group(400)] });
    expect(parseSnapshot({ ...ANSWER, replay: null }).replay).toBeNull();
  });

  it("refuses others", () => {
    expect(() => parseSnapshot({ ...ANSWER, replay: { ...REPLAY, chunks: null } })).toThrow("snapshot.replay.chunks");
    expect(() => parseSnapshot({ ...ANSWER, held_tensors: [{ ...group(4), shape: ["4"] }] })).toThrow("held_tensors[0].shape[0]");
    expect(() => parseSnapshot({ ...ANSWER, held_tensors: undefined })).toThrow("snapshot.held_tensors");
  });
});

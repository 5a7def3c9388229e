import { describe, expect, it } from "vitest";

import { bandOf, bytesOfLayer, chosenTimeline, groupSeries, isCompiled, layerSeries, liveRows } from "../../src/model/timeline";
import { MIB, column, rowsBySize, TIMELINE } from "./timeline-cases";

const mib = (bytes: Float64Array | null | undefined): number[] => [...(bytes ?? [])].map((size) => size / MIB);

describe("a timeline", () => {
  it("adds up by category at every moment", () => {
    expect(groupSeries(TIMELINE).map(({ key, bytes }) => [key, mib(bytes)])).toEqual([
      ["weights:trainable", [8, 8, 8, 8]],
      ["activations", [0, 4, 4, 0]],
      ["workspace", [0, 0, 2, 0]],
    ]);
  });

  it("adds up by layer, the others and memory without a layer last", () => {
    const untied = {
      ...TIMELINE,
      owners: [...TIMELINE.owners, { layer: null, category: "inputs" as const, trainable: null }],
      owner: column(0, 1, 2, 3),
    };
    expect(layerSeries(untied, 1).map(({ key, bytes }) => [key, mib(bytes)])).toEqual([
      ["layer:net/a", [8, 12, 12, 8]],
      ["others", [0, 0, 2, 0]],
      ["no_layer", [1, 1, 1, 0]],
    ]);
    expect(mib(bytesOfLayer(TIMELINE, "net/a"))).toEqual([8, 12, 12, 8]);
    expect(bytesOfLayer(TIMELINE, "net")).toBeNull();
  });

  it("has live rows, largest first: freed at a moment means not live at it", () => {
    const ordered = rowsBySize(TIMELINE);
    expect([...ordered]).toEqual([0, 1, 2, 3]);
    expect([0, 1, 2, 3].map((moment) => liveRows(TIMELINE, ordered, moment))).toEqual([[0, 3], [0, 1, 3], [0, 1, 2, 3], [0]]);
  });

  it("has passes and compiled modules", () => {
    expect([0, 1, 2, 3].map((moment) => bandOf(TIMELINE, moment)?.name ?? null)).toEqual(["forward", "forward", "backward", null]);
    expect([0, 1, 2].map((moment) => isCompiled(TIMELINE, moment))).toEqual([false, true, false]);
  });

  it("is chosen by step, otherwise by peak", () => {
    const refs = [
      { ...TIMELINE, step: 2, in_use_bytes: 9 },
      { ...TIMELINE, step: 6, in_use_bytes: 7 },
      { ...TIMELINE, step: 8, in_use_bytes: 9 },
    ];
    // Step 4 is as near to 2 as to 6: the first one stays.
    expect([0, 4, 5, 99, null].map((step) => chosenTimeline(refs, step)?.step)).toEqual([2, 2, 6, 8, 2]);
  });
});

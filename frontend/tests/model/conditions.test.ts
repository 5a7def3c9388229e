import { describe, expect, it } from "vitest";

import { AS_RECORDED, changedConditions, isAsRecorded } from "../../src/model/conditions";

describe("conditions", () => {
  it("are parameters where they differ from the recorded run", () => {
    expect(isAsRecorded(AS_RECORDED)).toBe(true);
    const changed = { ...AS_RECORDED, batch_size: "64", optimizer: "sgd" };
    expect(isAsRecorded(changed)).toBe(false);
    expect(changedConditions(changed)).toEqual([
      ["batch_size", "64"],
      ["optimizer", "sgd"],
    ]);
  });
});

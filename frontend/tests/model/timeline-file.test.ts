import { describe, expect, it } from "vitest";

import { timelineFile } from "../../src/model/timeline-file";
import { TIMELINE } from "./timeline-tensors-cases";

describe("the file", () => {
  it("is saved with shape, dtype, line, address and tensor", () => {
    const { columns, rows } = timelineFile(TIMELINE);
    const first = Object.fromEntries(columns.map((name, index) => [name, rows[0]?.[index]]));
    expect(first).toMatchObject({ shape: "(64, 32, 3)", dtype: "float32", line: "train.py:10", address: 9000, tensor: 0, bytes: 24_576 });
    const rounding = Object.fromEntries(columns.map((name, index) => [name, rows[1]?.[index]]));
    expect(rounding).toMatchObject({ category: "rounding", shape: null, dtype: null, tensor: 0, bytes: 256, count: 0 });
    const unplaced = TIMELINE.address.findIndex(Number.isNaN);
    expect(rows[unplaced]?.[columns.indexOf("address")]).toBeNull();
  });
});

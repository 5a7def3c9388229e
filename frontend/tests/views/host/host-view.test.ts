import { describe, expect, it } from "vitest";

import type { HostMemory } from "../../../src/model/pool";
import { boundaries } from "../../../src/views/host/host-view";

describe("the stack of host memory", () => {
  it("ends at RSS where the parts were measured, and is unknown elsewhere", () => {
    const host = {
      rows: 2,
      host_resident_bytes: Float64Array.of(900, 1000),
      tf_data_bytes: Float64Array.of(NaN, 300),
      cpu_bytes: Float64Array.of(NaN, NaN),
      other_bytes: Float64Array.of(NaN, 700),
    } as unknown as HostMemory;
    const tops = boundaries(host, ["tf_data_bytes", "cpu_bytes", "other_bytes"]).map((column) => [
      ...column,
    ]);
    expect(tops).toEqual([
      [NaN, 300],
      [NaN, 300],
      [NaN, 1000],
    ]);
  });
});

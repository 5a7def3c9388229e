import { describe, expect, it } from "vitest";

import type { Oom } from "../../../src/model/answer";
import type { MemoryMap } from "../../../src/model/memory-map";
import { seriesFill } from "../../../src/views/fragmentation/pool-spec";
import { oomBars } from "../../../src/views/oom/oom-drawing";
import { mapColours } from "../../../src/views/shared/memory-map/colours";

const OOM = { in_use_bytes: 900, free_bytes: 120, largest_free_bytes: 40, requested_bytes: 96, ledger: [] } as unknown as Oom;
const MAP = {
  rows: 1,
  states: ["free"],
  owners: [],
  bytes: Float64Array.of(120),
  requested_bytes: Float64Array.of(NaN),
  state: Float64Array.of(0),
  owner: Float64Array.of(NaN),
  since: Float64Array.of(NaN),
} as unknown as MemoryMap;

describe.each(["light", "dark"] as const)("free memory, %s", (scheme) => {
  it("looks the same in the post-mortem, the pool over steps and the memory map", () => {
    const fills = new Map(oomBars(OOM, scheme).pool.map(({ label, fill }) => [label, fill]));
    expect(fills.get("free: largest chunk")).toEqual(seriesFill("free_largest", scheme));
    expect(fills.get("free: other chunks")).toEqual(seriesFill("free_other", scheme));
    expect(mapColours(MAP, "category", scheme).kinds[0]?.fill).toEqual({ ...seriesFill("free_largest", scheme), muted: false });
    expect(fills.get("in use")).toEqual(seriesFill("allocated_bytes", scheme));
  });
});

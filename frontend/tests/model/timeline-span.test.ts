import { describe, expect, it } from "vitest";

import { groupKey } from "../../src/model/categories";
import { spanStatistics } from "../../src/model/timeline-span";
import { TIMELINE } from "./timeline-tensors-cases";

/** Bytes in use, added up moment by moment. */
const total = Float64Array.from({ length: TIMELINE.moments }, (_, moment) =>
  TIMELINE.bytes.reduce(
    (sum, bytes, row) => sum + ((TIMELINE.start[row] ?? 0) <= moment && moment < (TIMELINE.end[row] ?? 0) ? bytes : 0),
    0,
  ),
);

const of = (first: number, last: number) => spanStatistics(TIMELINE, total, [first, last]);

describe("the statistics of a span", () => {
  it("are what its events allocate and free", () => {
    const found = of(1, 2);
    // Moment 1 allocates the temporary and the state, moment 2 the activation, and frees the temporary.
    expect([found.allocated_bytes, found.freed_bytes]).toEqual([100 + 60 + 24_832, 100]);
    expect([found.allocated, found.freed]).toEqual([3, 1]);
    expect(found.groups.map(({ group, allocated_bytes, freed_bytes }) => [groupKey(group), allocated_bytes, freed_bytes])).toEqual([
      ["activations", 24_832 - 256, 0],
      ["rounding", 256, 0],
      ["workspace", 100, 100],
      ["other_state", 60, 0],
    ]);
    expect(found.largest).toEqual([0, 3, 7]);
    expect([found.peak, found.peak_bytes]).toEqual([2, total[2]]);
  });

  it("differ by the change of the bytes in use, in every span", () => {
    for (let first = 0; first < TIMELINE.moments; first += 1) {
      for (let last = first; last < TIMELINE.moments; last += 1) {
        const found = of(first, last);
        expect(found.allocated_bytes - found.freed_bytes).toBe((total[last] ?? 0) - (total[Math.max(first - 1, 0)] ?? 0));
        expect(found.peak_bytes).toBe(Math.max(...total.subarray(first, last + 1)));
        for (const flow of ["allocated_bytes", "freed_bytes", "allocated", "freed"] as const)
          expect(found.groups.reduce((sum, group) => sum + group[flow], 0)).toBe(found[flow]);
      }
    }
  });

  it("leave out what lives before the step", () => {
    expect(of(0, 0)).toMatchObject({ allocated_bytes: 0, freed_bytes: 0, largest: [], groups: [], peak: 0, peak_bytes: total[0] });
  });
});

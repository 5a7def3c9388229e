import { describe, expect, it } from "vitest";

import type { Group } from "./categories";
import { splitBySide } from "./frozen";
import type { LedgerTotals } from "./ledger-totals";
import type { Overview } from "./overview";

const GROUPS: Group[] = [
  { category: "weights", trainable: false },
  { category: "weights", trainable: true },
  { category: "weights", trainable: null },
];

function split(groups: Group[], bytes: number[], ledger: number[]): [string, number][] {
  const columns = (values: number[]): Float64Array[] => values.map((value) => Float64Array.of(value));
  const overview: Partial<Overview> = { rows: 1, groups, bytes: columns(bytes), snapshot: Float64Array.of(0) };
  const snapshots = [{ step: 7, mode: "graph" }] as unknown as Overview["snapshots"];
  const totals: Partial<LedgerTotals> = { rows: 1, groups: GROUPS, step: Float64Array.of(7), bytes: columns(ledger) };
  const parts = splitBySide({ ...overview, snapshots } as Overview, totals as LedgerTotals);
  return parts.map(({ side, bytes: [value] }) => [side, value ?? NaN]);
}

describe("splitBySide", () => {
  it("leaves weights that are only known to be weights out of both sides", () => {
    expect(split(GROUPS, [30, 20, 10], [30, 20, 10])).toEqual([
      ["frozen", 30],
      ["trainable", 20],
      ["other", 10],
    ]);
  });

  it("splits a category that the overview does not split as the ledger does", () => {
    expect(split([{ category: "weights", trainable: null }], [120], [30, 20, 10])).toEqual([
      ["frozen", 60],
      ["trainable", 40],
      ["other", 20],
    ]);
  });
});

import { readFileSync } from "node:fs";

import { describe, expect, it } from "vitest";

import { wouldFit, type Fit, type FitMap } from "./fit";

interface GoldenMap {
  device: string;
  pool_bytes: number | null;
  in_use_bytes: number | null;
  capacity_bytes: number | null;
  complete: boolean;
  /** Bytes, state and region of each chunk. */
  chunks: [number, number, number][];
  region_bytes: number[];
}
interface Golden {
  states: string[];
  cases: { name: string; map: GoldenMap; fits: Fit[] }[];
}
const golden = JSON.parse(readFileSync(new URL("../../../tests/golden/fits.json", import.meta.url), "utf8")) as Golden;

function mapOf({ chunks, region_bytes, ...map }: GoldenMap): FitMap {
  return {
    ...map,
    states: golden.states,
    rows: chunks.length,
    bytes: Float64Array.from(chunks, ([bytes]) => bytes),
    state: Float64Array.from(chunks, ([, state]) => state),
    region: Float64Array.from(chunks, ([, , region]) => region),
    regions: region_bytes.map((bytes, index) => ({ address: index * 2 ** 40, bytes })),
  };
}

describe.each(golden.cases)("$name", ({ map, fits }) => {
  it.each(fits)("$requested_bytes bytes: $fits", (fit) => {
    expect(wouldFit(mapOf(map), fit.requested_bytes)).toEqual(fit);
  });
});

it("knows every answer", () => {
  const all = golden.cases.flatMap(({ fits }) => fits.map(({ fits: answer }) => answer));
  expect(new Set(all)).toEqual(new Set([true, false, null]));
});

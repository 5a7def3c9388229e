import { expect, it } from "vitest";

import { fillsOf } from "../../../src/views/activations/activations-view";

const SERIES = ["conv", "dense", null].map((layer) => ({
  layer,
  count: 1,
  bytes: Float64Array.of(1),
})) as unknown as Parameters<typeof fillsOf>[0];
const muted = (focus: string | null): (boolean | undefined)[] =>
  fillsOf(SERIES, focus).map((fill) => fill.muted);

it("mutes the bands of other layers while one is in focus", () => {
  expect(muted(null)).toEqual([false, false, false]);
  expect(muted("layer:dense")).toEqual([true, false, true]);
});

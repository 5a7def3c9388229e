// @vitest-environment happy-dom
import { h, render } from "preact";
import { describe, expect, it } from "vitest";

import type { Store } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";

import {
  BatchSlider,
  curveSpec,
  largestMark,
  measuredPoint,
  sliderRow,
  wholeRange,
  zoomedRange,
} from "../../../src/views/what-if/peak-curve";
import { MIB, answer as verdict, curve } from "./what-if-cases";

const answer = { ...verdict, curve };

describe("the curve", () => {
  it("has a place for every batch size, from 0", () => {
    const spec = curveSpec(answer, wholeRange(answer));
    expect([...spec.x]).toEqual([2, 4, 8, 16, 20]);
    expect(spec.range).toEqual([0, 20 * 1.02]);
    expect(spec.yMax).toBeCloseTo(484 * 1.08 * MIB, 0);
  });

  it("fits its height to the zoom", () => {
    expect(curveSpec(answer, [1, 5]).yMax).toBeCloseTo(Math.max(204 * 1.08, 400 * 1.06) * MIB, 0);
  });

  it("marks the measured point, where it is in sight, and the largest batch size", () => {
    expect(measuredPoint(answer)).toEqual({ x: 4, y: 110 * MIB });
    expect(curveSpec(answer, wholeRange(answer)).lanes).toHaveLength(1);
    expect(curveSpec(answer, [6, 20]).lanes).toHaveLength(0);
    expect(
      measuredPoint({ ...answer, recorded: { batch_sizes: [], steps: [], peak_bytes: 1 } }),
    ).toBeNull();
    expect(largestMark(answer)).toMatchObject([{ x: 16, label: "largest: 16" }]);
    expect(largestMark(answer)[0]?.sentence).toContain("in 400 MiB");
    expect(largestMark({ ...answer, largest_batch_size: null })).toEqual([]);
  });

  it("has no mark and no line where no batch size fits or none is known to", () => {
    const painters = (largest: number | null) =>
      curveSpec({ ...answer, largest_batch_size: largest }, wholeRange(answer)).painters.length;
    expect(largestMark({ ...answer, largest_batch_size: 0 })).toEqual([]);
    expect(painters(0)).toBe(painters(16) - 1);
    expect(painters(null)).toBe(painters(0));
  });
});

it("a zoom stays inside the whole and spans at least one batch size", () => {
  expect(zoomedRange(-3, 9.5, [0, 20])).toEqual([0, 9.5]);
  expect(zoomedRange(12, 40, [0, 20])).toEqual([12, 20]);
  expect(zoomedRange(4, 5, [0, 20])).toEqual([4, 5]);
  expect(zoomedRange(4, 4.9, [0, 20])).toBeNull();
});

it("the slider has the scale and the ends of the plot", () => {
  const ignore = (): void => {};
  const slider = h(BatchSlider, { curve, range: [0, 10], row: 2, move: ignore, apply: ignore });
  const store = { fetched: { hold: ignore } } as unknown as Store;
  render(h(StoreContext.Provider, { value: store }, slider), document.body);
  const { min, max, value } = document.querySelector("input") as HTMLInputElement;
  expect([min, max, value]).toEqual(["0", "10", "8"]);
});

it("the slider goes to the nearest batch size of the curve, and by a key to the next one", () => {
  const sizes = curve.map(({ batch_size }) => batch_size);
  expect([9, 13, 40].map((value) => sliderRow(sizes, 2, value, true))).toEqual([2, 3, 4]);
  expect([9, 7].map((value) => sliderRow(sizes, 2, value, false))).toEqual([3, 1]);
  expect(sliderRow(sizes, 4, 21, false)).toBe(4);
});

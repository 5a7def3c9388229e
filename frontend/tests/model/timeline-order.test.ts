import { describe, expect, it } from "vitest";

import { addressPlaces, stackOrder } from "../../src/model/timeline-order";
import { timelineOf, TIMELINE } from "./timeline-tensors-cases";

describe("the order of the stack", () => {
  it("has persistent memory at the bottom, then what lives throughout, then the rest as it is allocated", () => {
    const order = [...stackOrder(TIMELINE)].map((row) => TIMELINE.tensor[row]);
    expect(order).toEqual([5, 5, 4, 2, 1, 7, 6, 3, 0, 0]);
  });

  it("has the rounding of a tensor above it", () => {
    const order = [...stackOrder(TIMELINE)];
    const activations = order.filter((row) => TIMELINE.tensor[row] === 0).map((row) => TIMELINE.bytes[row]);
    expect(activations).toEqual([24_576, 256]);
  });
});

describe("places by address", () => {
  it("are the addresses, with unused ranges cut down", () => {
    const places = addressPlaces(TIMELINE);
    const used = 512 + 50 + 24_832;
    const gap = used / 16;
    expect(places?.cuts).toEqual([562 + gap / 2]);
    const ofTensor = (tensor: number): number[] =>
      [...TIMELINE.tensor.keys()].filter((row) => TIMELINE.tensor[row] === tensor).map((row) => places?.place[row] ?? NaN);
    expect(ofTensor(2)).toEqual([0]);
    expect(ofTensor(6)).toEqual([512]);
    expect(ofTensor(3)).toEqual([562 + gap]);
    expect(ofTensor(0)).toEqual([562 + gap, 562 + gap + 24_576]);
    expect(ofTensor(4)).toEqual([NaN]);
    expect(places?.height).toBe(562 + gap + 24_832);
    expect([places?.unknown, places?.unknown_bytes]).toEqual([4, 9000 + 900 + 300 + 60]);
  });

  it("keep short gaps, and are none where no address is known", () => {
    const near = timelineOf([
      { category: "inputs", start: 0, end: 3, bytes: 1600, rounding: 0, address: 0 },
      { category: "inputs", start: 0, end: 3, bytes: 1600, rounding: 0, address: 1700 },
    ]);
    expect(addressPlaces(near)).toEqual({ place: Float64Array.of(0, 1700), height: 3300, cuts: [], unknown: 0, unknown_bytes: 0 });
    expect(addressPlaces(timelineOf([{ category: "inputs", start: 0, end: 3, bytes: 16 }]))).toBeNull();
  });
});

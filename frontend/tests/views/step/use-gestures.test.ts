import { describe, expect, it } from "vitest";

import { wheelMove } from "../../../src/views/step/use-gestures";

describe("the wheel", () => {
  const turn = { deltaX: 0, deltaY: 100, deltaMode: 0, shiftKey: false };
  it("zooms, and pans to the side or with Shift", () => {
    expect(wheelMove(turn)).toEqual({ pan: 0, zoom: 100 });
    expect(wheelMove({ ...turn, shiftKey: true })).toEqual({ pan: 100, zoom: 0 });
    expect(wheelMove({ ...turn, deltaX: -101 })).toEqual({ pan: -101, zoom: 0 });
    expect(wheelMove({ ...turn, deltaY: 3, deltaMode: 1 })).toEqual({ pan: 0, zoom: 48 });
  });
});

import { describe, expect, it } from "vitest";

import { DEFAULTS, changedTo, type Choices } from "../../src/state/address";
import { CLEARED_IN_ORDER, cleared } from "../../src/state/store";

const ALL: Choices = {
  ...DEFAULTS,
  view: "step",
  layer: "dense",
  category: "weights",
  tensor: 3,
  moment: 4,
  span: [1, 9],
  selection: [2, 5],
  step: 7,
  zoom: [1, 20],
  mapZooms: [[0, 256]],
};

/** Names of the choices that each press changes, until none does. */
function presses(start: Choices): string[] {
  const names: string[] = [];
  for (let now = start; ;) {
    const changed = cleared(now);
    if (Object.keys(changed).length === 0) return names;
    names.push(Object.keys(changed).join("+"));
    now = changedTo(now, changed);
  }
}

describe("Escape", () => {
  it("clears one choice at a time, in the order of the list of shortcuts", () => {
    expect(presses(ALL)).toEqual([
      "layer",
      "category",
      "tensor",
      "moment",
      "selection",
      "span",
      "step",
      "zoom+mapZooms",
    ]);
    expect(CLEARED_IN_ORDER).toBe(
      "selected layer, selected category, selected tensor, selected moment, selected span, zoom of the timeline, selected step, zoom",
    );
  });

  it("leaves the page of a layer with the layer still selected", () => {
    expect(presses({ ...ALL, view: "layer" }).slice(0, 2)).toEqual(["view", "layer"]);
    expect(cleared({ ...ALL, view: "layer" })).toEqual({ view: "layers" });
  });

  it("passes over what the view does not show", () => {
    expect(presses({ ...ALL, view: "overview" })).toEqual([
      "layer",
      "category",
      "step",
      "zoom+mapZooms",
    ]);
  });

  it("clears nothing where nothing is selected", () => {
    expect(presses(DEFAULTS)).toEqual([]);
  });
});

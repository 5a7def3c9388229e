import { describe, expect, it } from "vitest";

import { VIEWS, VIEW_NAMES, offeredViews, shownView, supports } from "../../src/state/views";
import type { RunInfo } from "../../src/schema";

const run = (changed: Partial<RunInfo>): RunInfo =>
  ({
    devices: [{ device: "GPU:0" }],
    ooms: 0,
    activation_layers: 0,
    ...changed,
  }) as unknown as RunInfo;

const whole = run({});
const failed = run({ devices: [], ooms: 2, activation_layers: 3 });
const summary = run({ devices: [], activation_layers: 3 });
const empty = run({ devices: [] });

describe("the table of views", () => {
  it("gives each view a tab or a parent with one", () => {
    for (const name of VIEW_NAMES) {
      const { title, parent } = VIEWS[name];
      expect(
        title !== undefined || (parent !== undefined && VIEWS[parent].title !== undefined),
        name,
      ).toBe(true);
    }
  });

  it("fetches an overview for every view with a step", () => {
    for (const name of VIEW_NAMES)
      if (supports(name, "step")) expect(VIEWS[name].needs, name).toContain("overview");
  });

  it("offers tabs for what was recorded, and for the view that is shown", () => {
    const always = [
      "overview",
      "layers",
      "frozen",
      "step",
      "fragmentation",
      "host",
      "what-if",
      "compare",
    ];
    const two = run({ devices: [{ device: "GPU:0" }, { device: "GPU:1" }] as RunInfo["devices"] });
    expect(offeredViews("overview", whole, [whole])).toEqual(always);
    expect(offeredViews("layer", whole, [whole, summary])).toEqual([...always, "activations"]);
    expect(offeredViews("overview", summary, [summary])).toEqual([...always, "activations"]);
    expect(offeredViews("overview", two, [two])).toContain("devices");
    expect(offeredViews("overview", failed, [failed])).toContain("oom");
    expect(offeredViews("devices", empty, [empty])).toContain("devices");
    expect(offeredViews("overview", null, [])).toEqual(always);
    const trained = run({ frozen: false });
    expect(offeredViews("overview", trained, [trained])).not.toContain("frozen");
    expect(offeredViews("frozen", trained, [trained])).toContain("frozen");
  });

  it("shows of a run without a device what else it recorded", () => {
    expect([whole, failed, summary, empty].map((one) => shownView("overview", null, one))).toEqual([
      "overview",
      "oom",
      "activations",
      null,
    ]);
    expect([whole, failed, summary, empty].map((one) => shownView("layers", null, one))).toEqual([
      "layers",
      null,
      null,
      null,
    ]);
    for (const name of ["oom", "activations"] as const)
      for (const one of [whole, failed, summary, empty])
        expect(shownView(name, null, one)).toBe(name);
  });

  it("shows all layers while none is selected", () => {
    expect([shownView("layer", "dense", whole), shownView("layer", null, whole)]).toEqual([
      "layer",
      "layers",
    ]);
    expect(shownView("layers", "dense", whole)).toBe("layers");
  });
});

import { describe, expect, it } from "vitest";

import { choicesFor } from "../../../src/views/shared/context";
import type { AnswerEvidence, RunInfo } from "../../../src/schema";

const RUN = { run: "exp", phases: ["train"] } as unknown as RunInfo;
const NONE: AnswerEvidence = {
  view: "overview",
  step: null,
  phase: null,
  other_step: null,
  category: null,
  layer: null,
  zoom: null,
  oom: null,
};

describe("the evidence of an answer", () => {
  it("selects a step of the whole run, and keeps what it does not name", () => {
    expect(choicesFor({ ...NONE, step: 7, phase: "train" }, RUN)).toEqual({
      view: "overview",
      step: 7,
      phase: "train",
      zoom: null,
      session: null,
    });
    expect(choicesFor(NONE, RUN)).toEqual({ view: "overview", zoom: null, session: null });
  });

  it("does not select a phase that the run has no steps of", () => {
    expect(choicesFor({ ...NONE, phase: "validation" }, RUN)).not.toHaveProperty("phase");
  });

  it("zooms to a growth and selects what grows", () => {
    expect(
      choicesFor(
        { ...NONE, step: 90, category: "held_tensors", layer: "net/a", zoom: [40, 90] },
        RUN,
      ),
    ).toMatchObject({ step: 90, category: "held_tensors", layer: "net/a", zoom: [40, 90] });
  });

  it("compares the steps before and after a change within the run", () => {
    expect(choicesFor({ ...NONE, view: "compare", step: 159, other_step: 160 }, RUN)).toMatchObject(
      { view: "compare", step: 159, other: "exp", otherStep: 160 },
    );
  });

  it("selects a failure and no step, because a failed step was not measured", () => {
    expect(choicesFor({ ...NONE, view: "oom", step: 150, phase: "train", oom: 2 }, RUN)).toEqual({
      view: "oom",
      oom: 2,
      mapZooms: [],
    });
  });
});

import { describe, expect, it } from "vitest";

import { answerTip, changeBetween, type Answer } from "../../src/model/answer";

const EVIDENCE = { step: null, phase: null, other_step: null, category: null, layer: null, zoom: null, oom: null };
const FITS: Answer = {
  name: "fits",
  question: "Fits?",
  sentence: "Fits: 1.0 of 2.0 GiB, 1.0 GiB headroom",
  status: "ok",
  source: "measured",
  evidence: { ...EVIDENCE, view: "overview", step: 7 },
  figures: { peak_bytes: 2 ** 30, capacity_bytes: 2 ** 31, headroom_bytes: 2 ** 30 },
  details: [],
};

describe("an answer's tooltip", () => {
  it("lists its figures in exact bytes, and how it is known", () => {
    expect(answerTip(FITS).split("\n")).toEqual([
      "measured peak: 1,073,741,824 B",
      "capacity: 2,147,483,648 B",
      "headroom: 1,073,741,824 B",
      "measured, step 7",
    ]);
  });

  it("gives a rate in whole bytes and steps as they are", () => {
    const figures = { steps: 240, bytes_per_step: 65_536.4, since_step: 40 };
    const growing: Answer = { ...FITS, name: "growing", source: "inferred", evidence: { ...EVIDENCE, view: "overview" }, figures };
    expect(answerTip(growing).split("\n")).toEqual(["steps: 240", "rate: 64.0 KiB per step", "since step: 40", "inferred"]);
  });

  it("names the figures of host memory, with their units", () => {
    const figures = { host_bytes_per_step: 524_288.2, since_step: 40, from_host_bytes: 2 ** 30, to_host_bytes: 2 ** 31 };
    expect(
      answerTip({ ...FITS, name: "growing", figures })
        .split("\n")
        .slice(0, -1),
    ).toEqual([
      "host RSS beyond CPU:0: 512 KiB per step",
      "since step: 40",
      "host RSS before: 1,073,741,824 B",
      "host RSS at the end: 2,147,483,648 B",
    ]);
  });

  it("begins with what the sentence leaves out, and gives changes of categories their sign", () => {
    const figures = { activations_delta_bytes: 1024, workspace_delta_bytes: -2048, earlier_optimizers_bytes: 4096 };
    const lines = answerTip({ ...FITS, name: "changed", figures, details: ["Compiled again."] }).split("\n");
    expect(lines.slice(0, -1)).toEqual([
      "Compiled again.",
      "activations: +1,024 B",
      "workspace: -2,048 B",
      "earlier optimizers and models: 4,096 B",
    ]);
  });

  it("is empty if nothing is known", () => {
    expect(answerTip({ ...FITS, source: "unknown", figures: {} })).toBe("");
  });
});

describe("the change between two steps", () => {
  const changed: Answer = { ...FITS, name: "changed", evidence: { ...EVIDENCE, view: "compare", step: 71, other_step: 73 } };

  it("is the answer that compares these steps, in this order", () => {
    expect(changeBetween([FITS, changed], 71, 73)).toBe(changed);
    for (const [step, other] of [
      [73, 71],
      [71, 80],
      [null, 73],
    ] as const) {
      expect(changeBetween([changed], step, other)).toBeNull();
    }
  });

  it("is unknown without an answer or without two compared steps", () => {
    expect(changeBetween(null, 71, 73)).toBeNull();
    expect(changeBetween([{ ...changed, evidence: { ...EVIDENCE, view: "overview" } }], null, null)).toBeNull();
  });
});

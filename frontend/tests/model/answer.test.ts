import { describe, expect, it } from "vitest";

import { answerTip, type Answer } from "../../src/model/answer";

const EVIDENCE = { step: null, phase: null, other_step: null, category: null, layer: null, zoom: null, oom: null };
const FITS: Answer = {
  name: "fits",
  question: "Fits?",
  sentence: "Fits: 1.0 of 2.0 GiB, 1.0 GiB headroom",
  status: "ok",
  source: "measured",
  evidence: { ...EVIDENCE, view: "overview", step: 7 },
  figures: { peak_bytes: 2 ** 30, capacity_bytes: 2 ** 31, headroom_bytes: 2 ** 30 },
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

  it("is empty if nothing is known", () => {
    expect(answerTip({ ...FITS, source: "unknown", figures: {} })).toBe("");
  });
});

import { describe, expect, it } from "vitest";

import { HOST_PARTS, hostFacts, hostSentence, listedParts, measuredRows, shownParts, type HostMemory } from "../../src/model/host-memory";

const { NaN: unknown } = Number;

/** Four steps, the parts measured at the second and the fourth. */
const column = (...values: number[]): Float64Array => Float64Array.from(values);
const HOST: HostMemory = {
  run: "run",
  device: "GPU:0",
  phase: "train",
  worker: "",
  rows: 4,
  total_rows: 4,
  summary: null,
  step: column(0, 1, 2, 3),
  wall_time: column(0, 1, 2, 3),
  host_resident_bytes: column(900, 1000, 1100, 1200),
  pinned_pool_bytes: column(unknown, unknown, unknown, unknown),
  tf_data_bytes: column(unknown, 0, unknown, 0),
  cpu_bytes: column(unknown, 300, unknown, 350),
  other_bytes: column(unknown, 700, unknown, 850),
};

describe("host memory", () => {
  it("has parts that sum to the RSS of the step at which they were measured", () => {
    const facts = hostFacts(HOST, 2);
    expect(facts.host_resident_bytes).toBe(1100);
    expect([facts.measured_step, facts.measured_bytes]).toEqual([1, 1000]);
    expect(HOST_PARTS.reduce((sum, name) => sum + (facts.parts[name] ?? 0), 0)).toBe(1000);
  });

  it("has no parts before the first measurement", () => {
    const facts = hostFacts(HOST, 0);
    expect(facts.measured_step).toBeNull();
    expect(HOST_PARTS.every((name) => facts.parts[name] === null)).toBe(true);
    expect([...measuredRows(HOST)]).toEqual([-1, 1, 1, 3]);
  });

  it("shows the parts that hold something, and leaves unknown ones out", () => {
    expect(shownParts(HOST)).toEqual(["cpu_bytes", "other_bytes"]);
    expect(hostFacts(HOST, 3).parts.pinned_pool_bytes).toBeNull();
  });

  it("lists unknown parts, but pinned memory and that of the CPU only where they are known", () => {
    expect(listedParts(hostFacts(HOST, 3))).toEqual(["other_bytes", "cpu_bytes", "tf_data_bytes"]);
    expect(listedParts(hostFacts(HOST, 0))).toEqual(["other_bytes", "tf_data_bytes"]);
    const pinned = { ...HOST, pinned_pool_bytes: column(unknown, 0, unknown, 30) };
    expect(listedParts(hostFacts(pinned, 1))).toEqual([...HOST_PARTS].reverse());
  });

  it("says a step's RSS", () => {
    expect(hostSentence(HOST, 1)).toBe("step 1: host RSS 1000 B");
  });
});

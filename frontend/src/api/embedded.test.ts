import { gzipSync } from "node:zlib";

import { describe, expect, it } from "vitest";

import { embeddedSource } from "./embedded";

type Given = Record<string, string>;

const never = new AbortController().signal;

const answer = (route: string, parameters: Given, body: unknown, status = 200) => ({
  route,
  parameters,
  status,
  data: gzipSync(typeof body === "string" ? body : JSON.stringify(body)).toString("base64"),
});

const table = (step: number) => ({
  run: "a",
  step,
  reason: "",
  optimizer: null,
  other_optimizer_bytes: 0,
  other_state_bytes: 0,
  layers: [],
});

const reportOf = (answers: unknown[], refusals: unknown[] = []): string =>
  JSON.stringify({ format: 1, absent: ["no maps"], answers, refusals });

describe("a saved report", () => {
  it("answers with what lies in it", async () => {
    const source = embeddedSource(reportOf([answer("runs", {}, { plugin_version: "1", runs: [] })]));
    expect(await source.runs(never)).toEqual({ plugin_version: "1", runs: [] });
    expect(await source.hostRuns(never)).toEqual([]);
    expect(source.absent).toEqual(["no maps"]);
  });

  it("takes for a step the layer table that holds at it, as the server does", async () => {
    const steps = [20, 0, 7].map((step) => answer("layers", { run: "a", step: String(step) }, table(step)));
    const source = embeddedSource(reportOf([...steps, answer("layers", { run: "a" }, table(20))]));
    const found = await Promise.all([0, 6, 7, 19, 20, 999].map((step) => source.layers("a", step, never)));
    expect(found.map(({ step }) => step)).toEqual([0, 0, 7, 7, 20, 20]);
    expect((await source.layers("a", null, never)).step).toBe(20);
    const later = embeddedSource(reportOf([answer("layers", { run: "a", step: "5" }, table(5))]));
    expect((await later.layers("a", 1, never)).step).toBe(5);
  });

  it("says why something is not in it", async () => {
    const refusal = { route: "layers", parameters: { run: "a", step: "7" }, why: "Not available in a report, because of its size." };
    const source = embeddedSource(
      reportOf(
        [answer("layers", { run: "a", step: "0" }, table(0)), answer("layers", { run: "b" }, "run b has no layer table", 404)],
        [refusal],
      ),
    );
    expect((await source.layers("a", 6, never)).step).toBe(0);
    await expect(source.layers("a", 8, never)).rejects.toThrow("because of its size");
    await expect(source.layers("b", 3, never)).rejects.toThrow("run b has no layer table");
    await expect(source.map("a", { oom: 0 }, never)).rejects.toThrow("Not available in a report");
  });

  it("refuses what is no report", () => {
    expect(() => embeddedSource("{}")).toThrow();
    expect(() => embeddedSource(JSON.stringify({ format: 2, absent: [], answers: [], refusals: [] }))).toThrow("format 2");
  });
});

/** Every case of the playground, from the wire to the figures that the page shows. */

import { describe, expect, it } from "vitest";

import { oomsOf } from "../../playground/allocator";
import { CASES } from "../../playground/cases";
import { answer } from "../../playground/server";
import {
  GROUPS,
  infoOf,
  ledgerAt,
  ledgerTotalsOf,
  overviewOf,
  snapshotAt,
  snapshotsOf,
  type Plan,
} from "../../playground/training";
import {
  parseActivations,
  parseLedgerTotals,
  parseOoms,
  parseOverview,
  parseRuns,
  parseSnapshot,
  parseSnapshots,
} from "../api/answers-cases";
import { formatBytes } from "../../src/lib/bytes";
import { WrongAnswer, decodeColumns } from "../../src/lib/check";
import { frozenFindings } from "../../src/model/answer";
import { groupDeltas } from "../../src/model/compare";
import { costSentences, splitBySide } from "../../src/model/frozen";
import {
  effectSentence,
  effectTitle,
  effects,
  breakdown,
  peakRow,
  provenance,
  rowOfStep,
  rowSentence,
  type Overview,
} from "../../src/model/overview";
import { topLayers, totalAt, owners, type Activations } from "../../src/model/snapshot";
import { DEFAULTS } from "../../src/state/address";
import { compareSpec, rowFor } from "../../src/views/compare/compare-view";
import { frozenPicture } from "../../src/views/frozen/frozen-view";
import { layerEdges, layerSpec, layerSteps, totalOf } from "../../src/views/layer/layer-view";
import { oomBars } from "../../src/views/oom/oom-view";
import { overviewPicture } from "../../src/views/overview/overview-view";
import { isMuted } from "../../src/views/shared/context";
import { placeLegend } from "../../src/views/shared/export";
import { NO_FOCUS } from "../views/focus-cases";

const plans = Object.entries(CASES).flatMap(([name, { plans: some }]) =>
  some.slice(0, 2).map((plan) => [`${name}: ${plan.run.slice(0, 30)}`, plan] as const),
);
const read = (plan: Plan): Overview =>
  parseOverview(overviewOf(plan, 0, plan.steps - 1, 1500).buffer);
const readTotals = (plan: Plan, layer: string | null = null) =>
  parseLedgerTotals(ledgerTotalsOf(plan, layer).buffer);

describe.each(plans)("%s", (_, plan) => {
  const overview = read(plan);

  it("survives the wire", () => {
    const { runs } = parseRuns(
      JSON.parse(JSON.stringify({ plugin_version: "1", runs: [infoOf(plan)] })),
    );
    expect(runs).toEqual([infoOf(plan)]);
    expect(overview.groups).toEqual(GROUPS);
    expect(
      parseSnapshots(JSON.parse(JSON.stringify({ run: "r", snapshots: snapshotsOf(plan) }))),
    ).toEqual(snapshotsOf(plan));
    const snapshot = snapshotAt(plan, 3);
    expect(parseSnapshot(JSON.parse(JSON.stringify(snapshot)))).toEqual(snapshot);
  });

  it("has rows whose parts sum to the peak", () => {
    for (let row = 0; row < overview.rows; row += 1) {
      const total = breakdown(overview, row).reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
      expect(total).toBe(overview.peak_bytes[row]);
    }
  });

  it("splits by frozen and trainable without losing a byte, as the ledger does at traced steps", () => {
    const parts = splitBySide(overview, readTotals(plan));
    for (let row = 0; row < overview.rows; row += 97) {
      expect(parts.reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0)).toBe(
        overview.peak_bytes[row],
      );
    }
    const step = overview.snapshots[0]?.step ?? 0;
    const row = rowOfStep(overview, step);
    const frozen = ledgerAt(plan, step)
      .filter(({ trainable }) => trainable === false)
      .reduce((sum, { bytes }) => sum + bytes, 0);
    const shown = parts
      .filter(({ side }) => side === "frozen")
      .reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0);
    expect(shown).toBe(frozen);
  });

  it("has a picture that holds everything", () => {
    const picture = overviewPicture(overview, 0, [], DEFAULTS, NO_FOCUS);
    expect(picture.spec.yMax).toBeGreaterThan(
      overview.peak_bytes.reduce((most, value) => Math.max(most, value), 0),
    );
    expect(picture.spec.range[1]).toBeGreaterThan(picture.spec.range[0]);
    const parts = splitBySide(overview, null);
    expect(
      frozenPicture(
        overview,
        parts,
        0,
        { ...DEFAULTS, axis: "relative" },
        { hovered: "frozen", category: null },
      ).spec.x,
    ).toHaveLength(overview.rows);
  });
});

describe("the unfreezing of a run", () => {
  const [plan] = CASES["two-runs"]?.plans as [Plan];
  const overview = read(plan);
  const [effect] = effects(overview);

  it("is one mark with its effect in bytes", () => {
    expect(effects(overview)).toHaveLength(1);
    if (!effect) throw new Error("no effect");
    expect(effectTitle(effect)).toBe("unfroze block5_conv3");
    expect(effectSentence(effect)).toBe(
      "Step 160: vgg16/block5_conv3 became trainable. 26.0 MiB of weights became trainable; optimizer state +52.0 MiB; measured peak 157 MiB → 312 MiB (+155 MiB).",
    );
  });

  it("joins the tables of neighbouring steps", () => {
    const [began, unfroze] = overview.changes as [Overview["changes"][0], Overview["changes"][0]];
    const compiled = { ...unfroze, optimizer_bytes: 0 };
    const built = { ...unfroze, reason: "optimizer Adam was built", became_trainable: [] };
    const joined = effects({ ...overview, changes: [began, compiled, built] });
    expect(joined).toHaveLength(1);
    expect(joined[0]?.optimizer_delta).toBe(effect?.optimizer_delta);
    expect(joined.map(effectTitle)).toEqual(["unfroze block5_conv3"]);
  });

  it("costs what the frozen weights would need to be trained, said before it happens", () => {
    const parts = splitBySide(overview, readTotals(plan));
    const [frozen, trainable, unfreezing] = costSentences(overview, parts, 3);
    const of = (side: string): number =>
      parts
        .filter((part) => part.side === side)
        .reduce((sum, { bytes }) => sum + (bytes[3] ?? 0), 0);
    expect(frozen).toContain(`At step 3, frozen layers use ${formatBytes(of("frozen"))}: `);
    expect(frozen).toContain("56.0 MiB of weights, which every forward pass reads");
    expect(trainable).toContain(
      `At step 3, trainable layers use ${formatBytes(of("trainable"))}: `,
    );
    expect(unfreezing).toBe(
      "Unfreezing all weights would add 112 MiB of optimizer state (2 × the weights, as for those trained now), " +
        "up to 56.0 MiB of weight gradients, and the activations saved for the longer backward pass.",
    );
  });

  it("is no finding, because the answers and a mark name it", () => {
    expect(frozenFindings(overview).map(({ kind }) => kind)).toEqual(["frozen"]);
  });
});

describe("two runs beside each other", () => {
  const [one, two] = (CASES["two-runs"]?.plans as [Plan, Plan]).map(read) as [Overview, Overview];

  it("are drawn over each other in one range", () => {
    const curve = (overview: Overview, row: number) => ({
      overview,
      colour: "#000",
      dash: [],
      row,
    });
    const spec = compareSpec(curve(one, 3), curve(two, 5), DEFAULTS);
    expect(spec.range).toEqual([-0.5, 239.5]);
    expect(spec.yMax).toBeGreaterThan(
      two.peak_bytes.reduce((most, value) => Math.max(most, value), 0),
    );
    expect(rowFor(one, null, 7)).toBe(7);
    expect(rowFor(one, 12, 7)).toBe(12);
    expect(rowFor(one, 99999, 7)).toBe(239);
  });

  it("have a waterfall whose changes sum to the difference of their peaks", () => {
    const deltas = groupDeltas(breakdown(one, 3), breakdown(two, 5));
    expect(deltas.reduce((sum, { delta }) => sum + delta, 0)).toBe(
      (two.peak_bytes[5] ?? 0) - (one.peak_bytes[3] ?? 0),
    );
  });
});

describe("a layer over the steps", () => {
  const [plan] = CASES["two-runs"]?.plans as [Plan];

  it("holds at each traced step what the ledger says", () => {
    const steps = layerSteps(readTotals(plan, plan.layers[0]));
    expect(steps.step).toHaveLength(snapshotsOf(plan).length);
    steps.step.forEach((step, row) => {
      const held = ledgerAt(plan, step).filter(({ layer }) => layer === plan.layers[0]);
      expect(totalOf(steps, row)).toBe(held.reduce((sum, { bytes }) => sum + bytes, 0));
      expect(steps.in_use_bytes[row]).toBe(snapshotAt(plan, step).in_use_bytes);
    });
    expect(layerSteps(readTotals(plan, "no such layer")).parts).toEqual([]);
  });

  it("is zoomed as every other chart is", () => {
    const steps = layerSteps(readTotals(plan, plan.layers[0]));
    const look = {
      focus: NO_FOCUS,
      firstSteps: new Map<number, number>(),
      span: [0, 239],
      whole: null,
    } as const;
    expect(layerSpec(steps, { ...look, choices: DEFAULTS }).spec.range).toEqual([-0.5, 239.5]);
    expect(
      layerSpec(steps, { ...look, choices: { ...DEFAULTS, zoom: [30, 90] } }).spec.range,
    ).toEqual([29.5, 90.5]);
    const [from, to] = layerSpec(steps, {
      ...look,
      choices: { ...DEFAULTS, axis: "relative", zoom: [43, 123] },
    }).spec.range;
    expect(to - from).toBe(20);
  });

  it("changes at the step at which the overview does, which may be before the trace", () => {
    const steps = Float64Array.of(10, 31);
    const edges = (first: number): number[] => [
      ...layerEdges(
        Float64Array.of(-0.5, 20, 60),
        steps,
        steps,
        new Map([[31, first]]),
        [-0.5, 60.5],
      ),
    ];
    expect(edges(30)).toEqual([-0.5, 30, 60.5]);
    expect(edges(31)).toEqual([-0.5, 31, 60.5]);
  });
});

describe("what is looked at", () => {
  const selected = { hovered: null, category: "weights" } as const;

  it("is what the pointer is on, else the selected category; all else is paler", () => {
    expect(isMuted(NO_FOCUS, ["weights:frozen"], "weights")).toBe(false);
    expect(isMuted(selected, ["weights:frozen"], "weights")).toBe(false);
    expect(isMuted(selected, ["inputs"], "inputs")).toBe(true);
    expect(isMuted({ ...selected, hovered: "inputs" }, ["inputs"], "inputs")).toBe(false);
    expect(isMuted({ ...selected, hovered: "inputs" }, ["weights:frozen"], "weights")).toBe(true);
  });
});

describe("recorded activations", () => {
  const [plan] = CASES["recorded-activations"]?.plans as [Plan];
  const get = (query: string): Activations =>
    parseActivations(
      (
        answer(
          CASES["recorded-activations"] as (typeof CASES)[string],
          "activations",
          new URLSearchParams(query),
        ).body as Uint8Array<ArrayBuffer>
      ).buffer,
    );

  it("come whole, and of a zoom its own steps", () => {
    const all = get(`run=${plan.run}`);
    expect([all.layers.length, all.rows]).toEqual([20, 240]);
    const near = get(`run=${plan.run}&first_step=30&last_step=59`);
    expect([...near.step]).toEqual(Array.from({ length: 30 }, (_, index) => 30 + index));
    expect(totalAt(topLayers(near, 5), 3)).toBe(totalAt(topLayers(all, 5), 33));
  });
});

describe("what is saved as a drawing", () => {
  it("holds the pool, the request and the categories of a failure", () => {
    const [plan] = CASES["oom-without-map"]?.plans as [Plan];
    const [oom] = parseOoms(JSON.parse(JSON.stringify({ run: "r", ooms: oomsOf(plan) })));
    if (!oom) throw new Error("no failure");
    expect(oom.chunks).toBeNull();
    const { pool, categories } = oomBars(oom);
    expect(pool.map(({ label }) => label)).toEqual([
      "in use",
      "free: largest chunk",
      "free: other chunks",
      "requested",
    ]);
    expect(pool.slice(0, 3).reduce((sum, { bytes }) => sum + bytes, 0)).toBe(oom.pool_bytes);
    expect(categories.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(oom.in_use_bytes);
    expect(oomBars({ ...oom, in_use_bytes: null }).pool.map(({ label }) => label)).toEqual([
      "requested",
    ]);
  });

  it("has a legend that wraps", () => {
    expect(placeLegend([100, 100, 100], 300)).toEqual([
      { x: 0, line: 0 },
      { x: 137, line: 0 },
      { x: 0, line: 1 },
    ]);
  });
});

describe("layers that stay frozen", () => {
  it("say what unfreezing would cost although it never happens", () => {
    const [plan] = CASES["never-unfrozen"]?.plans as [Plan];
    const overview = read(plan);
    expect(effects(overview)).toEqual([]);
    expect(costSentences(overview, splitBySide(overview, readTotals(plan)), 3).at(-1)).toContain(
      "would add 112 MiB of optimizer state",
    );
  });
});

describe("one row", () => {
  const [plan] = CASES["two-runs"]?.plans as [Plan];
  const overview = read(plan);

  it("says where it comes from", () => {
    expect(provenance(overview, 3).kind).toBe("traced");
    expect(provenance(overview, 50)).toMatchObject({ kind: "inferred", snapshot: { step: 43 } });
    expect(provenance({ ...overview, snapshots: [] }, 50).kind).toBe("layer table");
  });

  it("is a sentence for those who listen", () => {
    expect(rowSentence(overview, 0)).toMatch(
      /^step 0: peak 15\d MiB; workspace 59\.\d MiB; weights, frozen 56\.0 MiB/,
    );
  });

  it("finds the peak in spite of unknown rows", () => {
    const peaks = Float64Array.from([NaN, 3, 9, 9, NaN]);
    expect(peakRow({ ...overview, rows: 5, peak_bytes: peaks })).toBe(2);
    expect(peakRow({ ...overview, rows: 0 })).toBe(-1);
  });
});

describe("snapshots", () => {
  const [plan] = CASES["two-runs"]?.plans as [Plan];

  it("name owners by size", () => {
    const all = owners(ledgerAt(plan, 3));
    expect(all.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(snapshotAt(plan, 3).in_use_bytes);
  });
});

describe("answers that are not as expected", () => {
  const good = overviewOf((CASES["two-runs"]?.plans as [Plan])[0], 0, 9, 100);

  it("are refused with a sentence", () => {
    expect(() => parseRuns({ plugin_version: "1", runs: [{ run: 3 }] })).toThrow(WrongAnswer);
    expect(() => parseRuns(null)).toThrow("runs should be an object, got null");
    expect(() => decodeColumns(new ArrayBuffer(2))).toThrow("too short");
    expect(() => decodeColumns(good.buffer.slice(0, 40))).toThrow("header is truncated");
    expect(() => decodeColumns(good.buffer.slice(0, good.length - 8))).toThrow(
      "columns are truncated",
    );
  });

  it("give unknown figures for columns that are missing", () => {
    expect([...decodeColumns(good.buffer).column("no such column")].every(Number.isNaN)).toBe(true);
  });

  it("come with the server's sentence", () => {
    expect(
      answer(CASES["refused"] as (typeof CASES)[string], "runs", new URLSearchParams()),
    ).toMatchObject({ status: 400, body: "The run directory cannot be read." });
  });
});

/** The step timelines of the playground, from the wire to the page. */

import { describe, expect, it } from "vitest";

import { CASES } from "../../playground/cases";
import { timelineOf, timelineRefOf } from "../../playground/timeline";
import { ledgerAt, type Plan } from "../../playground/training";
import { parseTimeline, parseTimelines } from "../api/answers-cases";
import { BlockPainter } from "../../src/charts/timeline-block-paint";
import { rangeOfSpan, timelineCells } from "../../src/charts/timeline-layout";
import { groupOfOwner, groupKey } from "../../src/model/categories";
import {
  bandOf,
  bytesOfLayer,
  chosenTimeline,
  groupSeries,
  layerSeries,
  liveRows,
  ownerOfRow,
  type Timeline,
  momentSentence,
  rowFacts,
  sinceText,
  untilText,
  whatText,
} from "../../src/model/timeline";
import { DEFAULTS, type Choices } from "../../src/state/address";
import type { Focus } from "../../src/views/shared/context";
import {
  stepFills,
  stepFocus,
  stepParts,
  lanesOf,
  stepLook,
  stepSpec,
  type Parts,
  type StepPicture,
} from "../../src/views/step/step-spec";
import { rowsBySize } from "../model/timeline-cases";
import { NO_FOCUS } from "../views/focus-cases";

const plan = (name: string): Plan => (CASES[name]?.plans as [Plan])[0];
const read = (one: Plan, step = 3): Timeline => parseTimeline(timelineOf(one, step).buffer);
const plans = Object.entries(CASES).flatMap(([name, { plans: some }]) =>
  some.slice(0, 1).map((one) => [name, one] as const),
);

/** The chart of a stack for the choices of the address. */
function stepPicture(
  timeline: Timeline,
  parts: Parts,
  choices: Choices,
  focus: Focus,
): StepPicture {
  const look = stepLook(timeline, parts, choices, focus);
  const range = rangeOfSpan(look.layout.edges, choices.span);
  const painting = {
    choices,
    painter: new BlockPainter(),
    selected: [],
    selection: null,
    moving: false,
  };
  return { ...look, spec: stepSpec(timeline, look, range, painting) };
}

const last = (values: Float64Array): number => values[values.length - 1] ?? 0;

describe.each(plans)("the timeline of %s", (_, one) => {
  const timeline = read(one);

  it("is the ledger at the peak, to the byte", () => {
    const expected = new Map<string, number>();
    for (const row of ledgerAt(one, 3)) {
      const key = groupKey(groupOfOwner(row));
      expected.set(key, (expected.get(key) ?? 0) + row.bytes);
    }
    const shown = new Map(
      groupSeries(timeline).map(({ key, bytes }) => [key, bytes[timeline.peak]]),
    );
    expect(shown).toEqual(expected);
    const live = liveRows(timeline, rowsBySize(timeline), timeline.peak);
    expect(live.reduce((sum, row) => sum + (timeline.bytes[row] ?? 0), 0)).toBe(
      timeline.in_use_bytes,
    );
  });

  it.each(["category", "layer"] as const)(
    "is stacked by %s without losing a byte at any moment",
    (stack) => {
      const picture = stepPicture(
        timeline,
        stepParts(timeline, stack),
        { ...DEFAULTS, stack },
        NO_FOCUS,
      );
      const ordered = rowsBySize(timeline);
      for (const moment of [0, 1, timeline.peak, timeline.moments - 1]) {
        const live = liveRows(timeline, ordered, moment).reduce(
          (sum, row) => sum + (timeline.bytes[row] ?? 0),
          0,
        );
        expect(picture.layout.total[moment]).toBe(live);
      }
      expect(picture.spec.yMax).toBeGreaterThan(timeline.in_use_bytes);
      expect(picture.labels).toHaveLength(picture.series.length);
      expect(picture.fills).toHaveLength(picture.series.length);
    },
  );

  it("fits any number of pixels without losing its peak", () => {
    for (const timelineAxis of ["time", "event index"] as const) {
      const picture = stepPicture(
        timeline,
        stepParts(timeline, "category"),
        { ...DEFAULTS, timelineAxis },
        NO_FOCUS,
      );
      for (const width of [40, 333, 1000]) {
        const cells = timelineCells(picture.layout, picture.spec.range, width);
        expect(
          cells.some(({ moment }) => picture.layout.total[moment] === timeline.in_use_bytes),
        ).toBe(true);
        expect(cells.length).toBeLessThanOrEqual(width + 1);
        expect(
          cells.every(({ from, to }, index) => to > from && from >= (cells[index - 1]?.to ?? 0)),
        ).toBe(true);
        expect(cells.at(-1)?.to).toBeGreaterThan(width - 1.1);
      }
    }
  });
});

describe("a step's rows", () => {
  const timeline = read(plan("two-runs"));

  it("come largest first, each with its facts", () => {
    const live = liveRows(timeline, rowsBySize(timeline), timeline.peak);
    const sizes = live.map((row) => timeline.bytes[row] ?? 0);
    expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
    const weights = live.find((row) => ownerOfRow(timeline, row).category === "weights") ?? -1;
    expect(rowFacts(timeline, weights)).toEqual([
      "vgg16/block1_conv1: weights, frozen",
      "allocated before the step, live after the step",
      "the trace, step 3",
    ]);
    expect([sinceText(timeline, weights), untilText(timeline, weights)]).toEqual([
      "before",
      "after",
    ]);
    const made = live.find((row) => timeline.start[row] === 1) ?? -1;
    expect(whatText(timeline, made)).toBe("vgg16/block1_conv1/workspace");
    expect(sinceText(timeline, made)).toBe("250 µs");
    const merged = live.find((row) => (timeline.count[row] ?? 0) > 1) ?? -1;
    expect(whatText(timeline, merged)).toBe("3 smaller allocations");
    const unknown = live.find((row) => timeline.count[row] === 0) ?? -1;
    expect(whatText(timeline, unknown)).toBe("allocations unknown");
  });

  it("are in the bands of the step's passes", () => {
    expect(bandOf(timeline, 0)?.name).toBe("forward");
    expect(bandOf(timeline, timeline.peak + 5)?.name).toBe("backward_and_update");
    expect(bandOf(timeline, timeline.moments - 1)).toBeNull();
  });

  it("are a sentence for those who listen", () => {
    const { series, labels } = stepParts(timeline, "category");
    const sentence = momentSentence(timeline, series, labels, timeline.peak);
    expect(sentence).toMatch(
      /^at 18 ms, forward, peak: 156 MiB in use; workspace 60\.0 MiB; weights, frozen 56\.0 MiB/,
    );
  });

  it("can be looked at by layer", () => {
    const layers = layerSeries(timeline, 1);
    expect(layers.map(({ key }) => key)).toEqual([
      "layer:vgg16/block1_conv1",
      "others",
      "no_layer",
    ]);
    const own = bytesOfLayer(timeline, "vgg16/block1_conv1");
    expect(own && [...own]).toEqual([...(layers[0]?.bytes ?? [])]);
    expect(bytesOfLayer(timeline, "no such layer")).toBeNull();
    expect(stepParts(timeline, "layer").labels).toEqual([
      "block1_conv1",
      "block5_conv3",
      "not tied to a layer",
    ]);
  });
});

describe("what is chosen", () => {
  const refs = [3, 43, 203].map((step) => timelineRefOf(plan("two-runs"), step));

  it("is the nearest traced step, or the one of the highest peak", () => {
    expect(chosenTimeline(refs, 43)?.step).toBe(43);
    expect(chosenTimeline(refs, 20)?.step).toBe(3);
    expect(chosenTimeline(refs, 999)?.step).toBe(203);
    expect(chosenTimeline(refs, null)?.step).toBe(203);
    expect(chosenTimeline([], 3)).toBeNull();
  });

  it("is set off from the rest of the stack", () => {
    const timeline = read(plan("two-runs"));
    const { series } = stepParts(timeline, "category");
    const fills = stepFills(series, { hovered: null, category: "activations" });
    expect(fills.filter(({ muted }) => !muted)).toHaveLength(1);
    expect(stepFills(series, NO_FOCUS).some(({ muted }) => muted)).toBe(false);
    const layers = stepParts(timeline, "layer").series;
    expect(
      stepFocus(layers, { hovered: null, category: "activations" }, layers[0]?.layer ?? ""),
    ).toEqual({ hovered: layers[0]?.key, category: null });
    expect(stepFocus(series, NO_FOCUS, "any layer")).toBe(NO_FOCUS);
  });

  it("narrows what is drawn", () => {
    const timeline = read(plan("two-runs"));
    const parts = stepParts(timeline, "category");
    const whole = stepPicture(timeline, parts, DEFAULTS, NO_FOCUS);
    const part = stepPicture(timeline, parts, { ...DEFAULTS, span: [0, 3] }, NO_FOCUS);
    expect(part.spec.range[1]).toBeLessThan(whole.spec.range[1]);
    expect(part.spec.yMax).toBeLessThan(whole.spec.yMax);
    expect(whole.spec.range).toEqual([0, last(whole.layout.edges)]);
    expect(
      stepPicture(timeline, parts, { ...DEFAULTS, span: [9999, 99999] }, NO_FOCUS).spec.range[1],
    ).toBeGreaterThan(0);
  });

  it("has lanes for its passes and for a compiler's plan", () => {
    const compiled = read(plan("compiled"));
    const { layout } = stepPicture(compiled, stepParts(compiled, "category"), DEFAULTS, NO_FOCUS);
    const lanes = lanesOf(compiled, layout.edges).map((lane) =>
      lane.map(({ labels }) => labels.at(-1)),
    );
    expect(lanes).toEqual([["forward", "backward", "backward + update", "update"], ["XLA"]]);
    const graph = read(plan("refused"));
    expect(
      lanesOf(
        graph,
        stepPicture(graph, stepParts(graph, "category"), DEFAULTS, NO_FOCUS).layout.edges,
      ),
    ).toHaveLength(1);
  });

  it("comes through the wire", () => {
    const ref = timelineRefOf(plan("compiled"), 3);
    expect(parseTimelines(JSON.parse(JSON.stringify({ run: "r", timelines: [ref] })))).toEqual([
      ref,
    ]);
    expect(read(plan("compiled"))).toMatchObject(ref);
  });
});

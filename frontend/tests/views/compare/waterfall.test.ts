// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import { LETTER } from "../../../src/charts/layout";
import { WaterfallDrawing } from "../../../src/views/compare/waterfall";
import { MIB } from "../../model/overview-cases";
import { NO_FOCUS } from "../focus-cases";

const side = (name: string) => ({ name, letter: "A" as const, colour: "#123456", short: "a" });

it("says which way each bar goes, and sums what does not matter", () => {
  const host = document.createElement("div");
  const delta = (
    category: "weights" | "inputs" | "activations" | "workspace",
    from: number,
    to: number,
  ) => ({
    group: { category, trainable: null },
    from: from * MIB,
    to: to * MIB,
    delta: (to - from) * MIB,
  });
  const deltas = [
    delta("weights", 500, 500.5),
    delta("inputs", 1, 2),
    delta("activations", 0, 100),
    delta("workspace", 80, 10),
  ];
  const props = { deltas, from: side("A"), to: side("B"), focus: NO_FOCUS, width: 1000 };
  render(h(WaterfallDrawing, { ...props, beside: true }), host);
  const bars = [...host.querySelectorAll("g[data-figure]")].map((bar) => [
    bar.getAttribute("data-figure"),
    bar.querySelector("text")?.textContent,
  ]);
  expect(bars).toEqual([
    ["peak:A", "581 MiB"],
    ["activations", "▲ +100 MiB"],
    ["workspace", "▼ −70.0 MiB"],
    ["others", ""],
    ["peak:B", "613 MiB"],
  ]);
  render(null, host);
});

it.each([300, 420])(
  "labels of a waterfall that is %s pixels wide begin inside it and end before the bars",
  (width) => {
    const host = document.createElement("div");
    const deltas = (["weights", "activations", "workspace"] as const).map((category, index) => ({
      group: { category, trainable: null },
      from: index * MIB,
      to: 3 * MIB,
      delta: (3 - index) * MIB,
    }));
    const props = {
      deltas,
      from: side("a run whose name is longer than a third of the width"),
      to: side("B"),
    };
    render(h(WaterfallDrawing, { ...props, focus: NO_FOCUS, width }), host);
    const labels = [...host.querySelectorAll("text[text-anchor=end]")];
    expect(labels).toHaveLength(deltas.length + 2);
    for (const label of labels) {
      const end = Number(label.getAttribute("x"));
      expect(
        end - (label.textContent ?? "").length * LETTER,
        label.textContent ?? "",
      ).toBeGreaterThanOrEqual(0);
      expect(end).toBeLessThan(
        Number(label.parentElement?.querySelector("rect")?.getAttribute("x")),
      );
    }
    render(null, host);
  },
);

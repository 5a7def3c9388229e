// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Fill } from "../../../src/theme/palette";
import { Patterns, svgFill } from "../../../src/views/shared/export";

it.each<Fill["pattern"]>(["diagonal", "hatched"])(
  "lines of a %s fill cross the whole tile, so that they meet in the next one",
  (pattern) => {
    const fill: Fill = { colour: "#112233", pattern };
    const host = document.createElement("svg");
    render(h(Patterns, { fills: [fill], ground: "#ffffff" }), host);
    const tile = host.querySelector("pattern");
    expect(svgFill(fill)).toBe(`url(#${tile?.id ?? ""})`);
    const height = Number(tile?.getAttribute("height"));
    const lines = [
      ...(tile?.querySelector("path")?.getAttribute("d") ?? "").matchAll(
        /M(\S+) (\S+)L(\S+) (\S+?)(?=M|$)/g,
      ),
    ];
    expect(lines.length).toBeGreaterThan(0);
    for (const [, x1, y1, x2, y2] of lines) {
      const ends = [Number(y1), Number(y2)];
      expect(Math.min(...ends)).toBeLessThanOrEqual(0);
      expect(Math.max(...ends)).toBeGreaterThanOrEqual(height);
      // At 45°, and a tile is a period of them.
      expect(Math.abs(Number(x2) - Number(x1))).toBe(Math.abs(Number(y2) - Number(y1)));
    }
    render(null, host);
  },
);

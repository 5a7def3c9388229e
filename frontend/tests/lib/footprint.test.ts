import { describe, expect, it } from "vitest";

import { footprint } from "../../src/lib/footprint";

describe("footprint", () => {
  it("is that of the buffers for columns, each buffer once", () => {
    const buffer = new ArrayBuffer(1 << 20);
    const columns = { step: new Float64Array(buffer, 0, 10), bytes: new Float64Array(buffer, 80) };
    expect(footprint(columns)).toBeGreaterThanOrEqual(1 << 20);
    expect(footprint(columns)).toBeLessThan((1 << 20) + 200);
  });

  it("grows with every row of plain data", () => {
    const rows = (count: number): unknown => Array.from({ length: count }, (_, index) => ({ layer: `block${index}`, bytes: index }));
    const each = (footprint(rows(2000)) - footprint(rows(1000))) / 1000;
    expect(each).toBeGreaterThan(40);
    expect(each).toBeLessThan(100);
  });

  it("counts what is held twice once, and ends in a circle", () => {
    const layer = { path: "x".repeat(1000) };
    expect(footprint([layer, layer])).toBeLessThan(1200);
    const circle: { self?: unknown } = {};
    circle.self = circle;
    expect(footprint(circle)).toBeGreaterThan(0);
  });

  it("is nothing for nothing", () => {
    expect([footprint(null), footprint(undefined), footprint(5)]).toEqual([0, 0, 0]);
  });
});

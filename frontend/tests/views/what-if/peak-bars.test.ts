import { describe, expect, it } from "vitest";

import { ledgerDeltas } from "../../../src/model/what-if";
import { barsLayout } from "../../../src/views/what-if/peak-bars";
import { MIB, answer } from "./what-if-cases";

describe("the stacked bars", () => {
  it("stack the categories of both ledgers in the same order", () => {
    const { bars } = barsLayout(answer, ledgerDeltas(answer));
    expect(bars.map(({ name, bytes }) => [name, (bytes ?? 0) / MIB])).toEqual([
      ["measured", 110],
      ["predicted", 200],
    ]);
    expect(bars.map(({ segments }) => segments.map(({ key, low, high }) => [key, low / MIB, high / MIB]))).toEqual([
      [["activations", 0, 110]],
      [
        ["weights:trainable", 0, 22],
        ["activations", 22, 202],
      ],
    ]);
  });

  it("leave room for the range, and for the capacity where it is near", () => {
    expect(barsLayout(answer, ledgerDeltas(answer))).toMatchObject({ capacityInside: true, top: 400 * 1.06 * MIB });
    const roomy = { ...answer, capacity_bytes: 4000 * MIB };
    const { capacityInside, top } = barsLayout(roomy, ledgerDeltas(roomy));
    expect(capacityInside).toBe(false);
    expect(top).toBeGreaterThan(210 * MIB);
    expect(top).toBeLessThan(260 * MIB);
  });

  it("show the prediction alone where nothing was measured", () => {
    const alone = { ...answer, measured: null };
    expect(barsLayout(alone, ledgerDeltas(alone)).bars.map(({ name }) => name)).toEqual(["predicted"]);
  });
});

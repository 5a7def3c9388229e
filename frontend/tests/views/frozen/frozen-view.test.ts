import { expect, it } from "vitest";

import type { SidePart } from "../../../src/model/frozen";
import { categoryFill } from "../../../src/theme/palette";
import { sideFill } from "../../../src/views/frozen/frozen-view";

it("marks the frozen layers' part of a category alone by a pattern", () => {
  const part = (side: SidePart["side"]): SidePart =>
    ({ side, category: "weights", bytes: Float64Array.of(1) }) as unknown as SidePart;
  const [frozen, trainable] = [sideFill(part("frozen")), sideFill(part("trainable"))];
  expect(frozen.colour).toBe(trainable.colour);
  expect([frozen.pattern, trainable.pattern]).toEqual(["diagonal", "plain"]);
  expect(trainable).toEqual(categoryFill("weights"));
});

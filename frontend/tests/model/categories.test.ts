import { expect, it } from "vitest";

import { stackOrder } from "../../src/model/categories";
import { CATEGORIES, PERSISTENT, type Group } from "../../src/schema";

it("has persistent memory below transient memory", () => {
  expect(CATEGORIES.slice(0, PERSISTENT.length)).toEqual(PERSISTENT);
});

it("orders groups from the bottom of the stack, frozen before trainable", () => {
  const groups: Group[] = [
    { category: "unattributed", trainable: null },
    { category: "weights", trainable: null },
    { category: "weights", trainable: true },
    { category: "weights", trainable: false },
    { category: "optimizer_state", trainable: true },
  ];
  expect([...groups].sort((a, b) => stackOrder(a) - stackOrder(b))).toEqual([
    groups[3],
    groups[2],
    groups[1],
    groups[4],
    groups[0],
  ]);
});

import { describe, expect, it } from "vitest";

import { distinctNames, namesOf } from "../../src/model/names";

describe("distinctNames", () => {
  it("are as short as can be", () => {
    expect(distinctNames(["a/x/w", "a/y/w", "b/z"])).toEqual(["x/w", "y/w", "z"]);
    expect(distinctNames(["a/w", "b/a/w"])).toEqual(["a/w", "b/a/w"]);
    expect(distinctNames([])).toEqual([]);
    expect(namesOf(["a/x/w", "a/y/w"])).toEqual(
      new Map([
        ["a/x/w", "x/w"],
        ["a/y/w", "y/w"],
      ]),
    );
  });
});

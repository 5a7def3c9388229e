import { describe, expect, it } from "vitest";

import { namesOrNone, oneOrNamedNone, sizeOrNone, spanOrNone, spans, wholeOrNone, type Codec } from "../../src/state/codec";

function parsed<T>(codec: Codec<T>, address: string): T {
  return codec.parse(new URLSearchParams(address));
}

describe("a choice in the address", () => {
  it.each(["-4", "1.5", "", "1e3", " 7", "1234567890123456", "٣"])("is no whole number: %j", (written) => {
    expect(parsed(wholeOrNone("n"), `n=${written}`)).toBeNull();
  });

  it.each(["9-3", "5", "-", "1-2-3", "a-b", "-1-2"])("is no span: %j", (written) => {
    expect(parsed(spanOrNone("z"), `z=${written}`)).toBeNull();
    expect(parsed(spans("z"), `z=1-2&z=${written}`)).toEqual([[1, 2]]);
  });

  it("is a span of one step, but no empty span of addresses", () => {
    expect(parsed(spanOrNone("z"), "z=5-5")).toEqual([5, 5]);
    expect(parsed(spans("z"), "z=5-5")).toEqual([]);
  });

  it.each(["-3", "0", "Infinity", "x", "", "NaN", "+1"])("is no size: %j", (written) => {
    expect(parsed(sizeOrNone("s"), `s=${encodeURIComponent(written)}`)).toBeNull();
  });

  it("has a default that is not its null", () => {
    const sort = oneOrNamedNone("sort", ["name", "size"], "size", "model");
    expect(["", "sort=model", "sort=name", "sort=x"].map((written) => parsed(sort, written))).toEqual(["size", null, "name", "size"]);
  });

  it("tells an empty list from none", () => {
    const names = namesOrNone("with", "none");
    expect(["", "with=a&with=b", "none=1", "with="].map((written) => parsed(names, written))).toEqual([null, ["a", "b"], [], [""]]);
  });
});

import { describe, expect, it } from "vitest";

import { DEVICE_SORTS } from "../../src/model/devices";
import { GROUPINGS, SORT_KEYS } from "../../src/model/layers";
import { COLOURINGS } from "../../src/model/memory-map";
import { POOL_INSTANTS } from "../../src/model/pool";
import { RUN_SORTS } from "../../src/model/run";
import { CONDITIONS } from "../../src/model/what-if";
import {
  AXES,
  DRAGS,
  DEFAULTS,
  PLACEMENTS,
  STACKS,
  TENSOR_COLOURINGS,
  TIMELINE_AXES,
  changedTo,
  decode,
  encode,
  namesOrNone,
  oneOrNamedNone,
  sizeOrNone,
  spanOrNone,
  spans,
  wholeOrNone,
  type Choices,
  type Codec,
} from "../../src/state/address";
import { VIEW_NAMES } from "../../src/state/views";
import { CATEGORIES, PHASES } from "../../src/schema";

/** Numbers from 0 to 1, the same in every run (mulberry32). */
function numbersOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Any choices: each has a value that its type allows, unusual ones among them. */
function anyChoices(random: () => number): Choices {
  const below = (limit: number): number => Math.floor(random() * limit);
  const one = <T>(values: readonly T[]): T => values[below(values.length)] as T;
  const orNull = <T>(value: T): T | null => (random() < 0.3 ? null : value);
  const text = (): string =>
    Array.from({ length: below(9) }, () => one([...'aZ09 &=+%#/?-,.\n"<é✓\u{1f4be}'])).join("");
  const whole = (): number => one([0, 1, below(1000), below(1e15)]);
  const span = (): readonly [number, number] => {
    const first = whole();
    return [first, Math.min(first + whole(), 1e15 - 1)];
  };
  return {
    view: one(VIEW_NAMES),
    runs: orNull(Array.from({ length: below(4) }, text)),
    primary: orNull(text()),
    device: orNull(text()),
    phase: orNull(one(PHASES)),
    axis: one(AXES),
    step: orNull(whole()),
    zoom: orNull(span()),
    filter: text(),
    runSort: one(RUN_SORTS),
    layer: orNull(text()),
    category: orNull(one(CATEGORIES)),
    stack: one(STACKS),
    tensorColouring: one(TENSOR_COLOURINGS),
    placement: one(PLACEMENTS),
    tensor: orNull(whole()),
    timelineAxis: one(TIMELINE_AXES),
    moment: orNull(whole()),
    span: orNull(span()),
    selection: orNull(span()),
    dragging: one(DRAGS),
    session: orNull(text()),
    oom: whole(),
    other: orNull(text()),
    otherStep: orNull(whole()),
    exact: random() < 0.5,
    all: random() < 0.5,
    survived: random() < 0.5,
    search: text(),
    grouping: one(GROUPINGS),
    sort: orNull(one(SORT_KEYS)),
    columns: random() < 0.5,
    deviceSort: one(DEVICE_SORTS),
    colouring: one(COLOURINGS),
    mapZooms: Array.from({ length: below(4) }, span).filter(([from, to]) => from < to),
    fitMib: orNull(one([12.5, 1e-3, 1 + below(1e6), 1 / 3])),
    instant: one(POOL_INSTANTS),
    conditions: Object.fromEntries(
      CONDITIONS.map((name) => [name, text()]),
    ) as Choices["conditions"],
  };
}

describe("address", () => {
  const chosen: Choices = {
    view: "frozen",
    runs: ["a,b", "c&d=é", "<img src=x>"],
    primary: "a,b",
    device: "GPU:0",
    phase: "validation",
    axis: "wall",
    step: 412,
    zoom: [3, 99],
    filter: "a|b+",
    runSort: "peak",
    layer: "vgg16/block5_conv1",
    category: "activation_gradients",
    stack: "layer",
    tensorColouring: "layer",
    placement: "by address",
    tensor: 512,
    timelineAxis: "event index",
    moment: 77,
    span: [3, 700],
    selection: [9, 12],
    dragging: "select",
    session: "20260921T131313Z-0a1b2c3d",
    oom: 2,
    other: "c&d=é",
    otherStep: 17,
    exact: true,
    all: true,
    survived: true,
    search: "block[45]&x=1",
    grouping: "trainable",
    sort: "weight_gradients",
    columns: true,
    deviceSort: "headroom_bytes",
    colouring: "age",
    mapZooms: [
      [140117155999808, 140117160194048],
      [140125745934336, 140125745934592],
    ],
    fitMib: 12.5,
    instant: "step end",
    conditions: {
      batch_size: "64",
      capacity: "24 GiB",
      freeze: "block[45]&x=1",
      unfreeze: "a|b+",
      optimizer: "sgd",
      precision: "mixed_float16",
      budget: "1.5 GiB",
    },
  };

  it("comes back as it was", () => {
    expect(decode(encode(chosen))).toEqual(chosen);
    expect(decode(encode({ ...DEFAULTS, runs: [] }))).toEqual({ ...DEFAULTS, runs: [] });
    expect(decode(encode({ ...DEFAULTS, sort: null }))).toEqual({ ...DEFAULTS, sort: null });
  });

  it("brings back any choices, and each of them alone", () => {
    const random = numbersOf(20260921);
    for (let turn = 0; turn < 100; turn += 1) {
      const any = anyChoices(random);
      expect(decode(encode(any))).toEqual(any);
      for (const name of Object.keys(DEFAULTS) as (keyof Choices)[]) {
        const alone = { ...DEFAULTS, [name]: any[name] };
        expect(decode(encode(alone)), name).toEqual(alone);
      }
    }
  });

  it("writes an address only in one way", () => {
    const random = numbersOf(7);
    for (let turn = 0; turn < 300; turn += 1) {
      const written = encode(anyChoices(random));
      expect(encode(decode(written))).toBe(written);
    }
  });

  it("holds every choice: none of the example is a default", () => {
    for (const name of Object.keys(DEFAULTS) as (keyof Choices)[]) {
      expect(chosen[name], name).not.toEqual(DEFAULTS[name]);
      expect(encode({ ...DEFAULTS, [name]: chosen[name] }), name).not.toBe("");
    }
  });

  it("is empty for the defaults and gives the defaults for nonsense", () => {
    expect(encode(DEFAULTS)).toBe("");
    expect(
      decode(
        "view=nothing&step=-4&zoom=9-3&x=%%%&phase=lunch&sort=x&group=y&colour=z&map=5-5&map=a-b&fit=-3&moment=1.5&span=4&stack=x&timeline=out",
      ),
    ).toEqual(DEFAULTS);
  });
});

describe("a moment inside a step", () => {
  const inside: Choices = {
    ...DEFAULTS,
    step: 7,
    moment: 3,
    span: [1, 9],
    selection: [2, 5],
    layer: "a",
  };

  it("is let go with its step, and only then", () => {
    expect(changedTo(inside, { view: "layers" })).toEqual({ ...inside, view: "layers" });
    expect(changedTo(inside, { step: 7 })).toEqual(inside);
    expect(changedTo(inside, { step: 8 })).toEqual({
      ...inside,
      step: 8,
      moment: null,
      span: null,
      selection: null,
    });
    expect(changedTo(inside, { session: "s" })).toEqual({
      ...inside,
      session: "s",
      moment: null,
      span: null,
      selection: null,
    });
    expect(changedTo(inside, { device: "GPU:1", moment: 4 })).toEqual({
      ...inside,
      device: "GPU:1",
      moment: 4,
      span: null,
      selection: null,
    });
  });
});

function parsed<T>(codec: Codec<T>, address: string): T {
  return codec.parse(new URLSearchParams(address));
}

describe("a choice in the address", () => {
  it.each(["-4", "1.5", "", "1e3", " 7", "1234567890123456", "٣"])(
    "is no whole number: %j",
    (written) => {
      expect(parsed(wholeOrNone("n"), `n=${written}`)).toBeNull();
    },
  );

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
    expect(
      ["", "sort=model", "sort=name", "sort=x"].map((written) => parsed(sort, written)),
    ).toEqual(["size", null, "name", "size"]);
  });

  it("tells an empty list from none", () => {
    const names = namesOrNone("with", "none");
    expect(
      ["", "with=a&with=b", "none=1", "with="].map((written) => parsed(names, written)),
    ).toEqual([null, ["a", "b"], [], [""]]);
  });
});

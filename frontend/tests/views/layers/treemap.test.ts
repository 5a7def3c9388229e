import { describe, expect, it } from "vitest";

import { groupLayers, type LayerFigures } from "../../../src/model/layers";
import { areaFill, areaText, blockText, blocksOf, placeBlocks } from "../../../src/views/layers/treemap";
import { CATEGORIES, PERSISTENT, type Category } from "../../../src/schema";

const layer = (path: string | null, trainable: boolean | null, bytes: Partial<Record<Category, number>>): LayerFigures => {
  const all = Object.fromEntries(CATEGORIES.map((category) => [category, bytes[category] ?? 0])) as Record<Category, number>;
  const total = Object.values(all).reduce((sum, one) => sum + one, 0);
  const unknown = { parameters: 0, output_shape: null, output_dtype: null, output_bytes: null, recomputed: null };
  const persistent = PERSISTENT.reduce((sum, category) => sum + all[category], 0);
  return {
    path,
    type: "Dense",
    trainable,
    training: trainable === false ? "frozen" : "trainable",
    ...unknown,
    bytes: all,
    total,
    persistent,
    saved: all.activations,
  };
};

const LAYERS = [
  layer("net/small", false, { weights: 100 }),
  layer("net/large", true, { activations: 500, weights: 300, workspace: 9000 }),
  layer("net/empty", true, {}),
  layer(null, null, { held_tensors: 100, inputs: 50 }),
];

describe("the areas of the treemap", () => {
  const blocks = blocksOf(groupLayers(LAYERS, "none", null), 1000);
  const areas = blocks.flatMap((block) => block.areas);

  it("consist of persistent memory and saved activations, not of what lives at the peak alone", () => {
    expect(areas.map(({ parts }) => parts.map(({ category, bytes }) => [category, bytes]))).toEqual([
      [
        ["activations", 500],
        ["weights", 300],
      ],
      [["weights", 100]],
      [["held_tensors", 100]],
    ]);
  });

  it("are layers by size, with their share and main category", () => {
    expect(areas.map(({ name, bytes, main, share }) => [name, bytes, main, share])).toEqual([
      ["large", 800, "activations", "80 %, mostly activations"],
      ["small", 100, "weights", "10 %, mostly weights"],
      ["not tied to a layer", 100, "held_tensors", "10 %, mostly held tensors"],
    ]);
  });

  it("cover the whole box in proportion to their bytes", () => {
    const rectangles = placeBlocks(blocks, 200, 50).flatMap((placed) => placed.areas);
    expect(rectangles.map(({ index, width, height }) => [index, Math.round(width * height)])).toEqual([
      [0, 8000],
      [1, 1000],
      [2, 1000],
    ]);
    expect(rectangles.every(({ x, y, width, height }) => x >= 0 && y >= 0 && x + width <= 200.001 && y + height <= 50.001)).toBe(true);
  });

  it("are striped for frozen layers only", () => {
    expect(areas.map((area) => areaFill(area, "light", "#eee").pattern)).toEqual(["plain", "diagonal", "plain"]);
    const rest = { layer: null, name: "2 more layers", bytes: 1, parts: [], main: null, share: "", count: 2 };
    expect(areaFill(rest, "light", "#eee")).toEqual({ colour: "#eee", pattern: "plain" });
  });

  it("have as much text as fits", () => {
    const [large] = areas;
    if (!large) throw new Error("no area");
    expect([areaText(large, 100, 60), areaText(large, 100, 30), areaText(large, 100, 10), areaText(large, 50, 60)]).toEqual([
      ["large", "800 B"],
      ["large"],
      [],
      [],
    ]);
    expect(areaText({ ...large, name: "a_very_long_layer_name" }, 73, 30)).toEqual(["a_very_l…"]);
    expect(areaText({ ...large, name: "replaced/net/block4_conv2" }, 108, 30)).toEqual(["…/block4_conv2"]);
  });
});

describe("the blocks of the treemap", () => {
  const blocks = blocksOf(groupLayers(LAYERS, "trainable", "rank"), 1000);
  const placed = placeBlocks(blocks, 400, 100);

  it("are the groups of the table", () => {
    expect(blocks.map(({ title, bytes, areas }) => [title, bytes, areas.map(({ name }) => name)])).toEqual([
      ["trainable", 800, ["large"]],
      ["frozen", 100, ["small"]],
      ["not tied to a layer", 100, ["not tied to a layer"]],
    ]);
  });

  it("are in proportion to their bytes, and hold their areas below a title", () => {
    expect(placed.map(({ width, height }) => Math.round((width * height) / 40))).toEqual([800, 100, 100]);
    for (const one of placed) {
      for (const area of one.areas) {
        expect(area.x).toBeGreaterThanOrEqual(one.x);
        expect(area.y).toBeGreaterThanOrEqual(one.y + one.head);
        expect(area.x + area.width).toBeLessThanOrEqual(one.x + one.width + 1e-6);
        expect(area.y + area.height).toBeLessThanOrEqual(one.y + one.height + 1e-6);
      }
    }
    expect(placed[0] && blockText(placed[0])).toBe("trainable 800 B");
  });

  it("have no title where there is no room, or where nothing is grouped", () => {
    expect(placeBlocks(blocks, 400, 30).every(({ head }) => head === 0)).toBe(true);
    expect(placeBlocks(blocksOf(groupLayers(LAYERS, "none", null), 1000), 400, 100).map(({ head }) => head)).toEqual([0]);
  });

  it("count the layers without an area of their own in their group", () => {
    const many = Array.from({ length: 100 }, (_, index) => layer(`net/layer${index}`, index < 40, { weights: 100 + index }));
    const counted = blocksOf(groupLayers(many, "trainable", null), 14950).map(({ areas }) => areas.at(-1));
    expect(counted.map((area) => [area?.layer, area?.name])).toEqual([
      [null, "40 more layers"],
      [expect.anything(), "layer40"],
    ]);
  });
});

import { describe, expect, it } from "vitest";

import { CATEGORIES, type Category } from "../../model/categories";
import type { LayerFigures } from "../../model/layer-figures";
import { areaFill, areaText, areasOf, placeAreas } from "./treemap-layers";

const layer = (path: string | null, trainable: boolean | null, bytes: Partial<Record<Category, number>>): LayerFigures => {
  const all = Object.fromEntries(CATEGORIES.map((category) => [category, bytes[category] ?? 0])) as Record<Category, number>;
  const total = Object.values(all).reduce((sum, one) => sum + one, 0);
  return { path, type: "Dense", trainable, parameters: 0, output_shape: null, output_dtype: null, output_bytes: null, bytes: all, total };
};

const LAYERS = [
  layer("net/small", false, { weights: 100 }),
  layer("net/large", true, { activations: 500, weights: 300 }),
  layer("net/empty", true, {}),
  layer(null, null, { inputs: 100 }),
];

describe("the areas of the treemap", () => {
  const areas = areasOf(LAYERS, 1000);

  it("are layers by size, with their share and main category", () => {
    expect(areas.map(({ name, bytes, main, share }) => [name, bytes, main, share])).toEqual([
      ["large", 800, "activations", "80 %, mostly activations"],
      ["small", 100, "weights", "10 %, mostly weights"],
      ["not tied to a layer", 100, "inputs", "10 %, mostly inputs"],
    ]);
  });

  it("cover the whole box in proportion to their bytes", () => {
    const rectangles = placeAreas(areas, 200, 50);
    expect(rectangles.map(({ index, width, height }) => [index, Math.round(width * height)])).toEqual([
      [0, 8000],
      [1, 1000],
      [2, 1000],
    ]);
    expect(rectangles.every(({ x, y, width, height }) => x >= 0 && y >= 0 && x + width <= 200.001 && y + height <= 50.001)).toBe(true);
  });

  it("are striped for frozen layers only", () => {
    expect(areas.map((area) => areaFill(area, "light", "#eee").pattern)).toEqual(["plain", "diagonal", "plain"]);
    const rest = { layer: null, name: "2 more layers", bytes: 1, main: null, share: "", count: 2 };
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
    expect(areaText({ ...large, name: "a_very_long_layer_name" }, 57, 30)).toEqual(["a_very…"]);
  });
});

import {
  clampRgb,
  converter,
  differenceCiede2000,
  filterDeficiencyDeuter,
  filterDeficiencyProt,
  filterDeficiencyTrit,
  parse,
  wcagContrast,
  type Color,
} from "culori";
import { afterAll, beforeEach, describe, expect, it } from "vitest";

import {
  CATEGORY_COLOURS,
  INKS,
  LAYERS_TOLD_APART,
  categoryFill,
  dark,
  fillOf,
  freeFill,
  layerColour,
  outsideFill,
  runColour,
  runDash,
  sequence,
  type Scheme,
} from "../../src/theme/palette";
import { CATEGORIES, type Category } from "../../src/schema";

const colourOf = (css: string): Color => {
  const parsed = parse(css);
  if (!parsed) throw new Error(css);
  return parsed;
};

/** Full dichromacy. */
const SIGHT: Record<string, (colour: Color) => Color> = {
  normal: (colour) => colour,
  protanopia: filterDeficiencyProt(1),
  deuteranopia: filterDeficiencyDeuter(1),
  tritanopia: filterDeficiencyTrit(1),
};

const ciede2000 = differenceCiede2000();
/** As simulated, and as a screen shows what is simulated. */
const difference = (a: string, b: string, sight: (colour: Color) => Color): number => {
  const [p, q] = [sight(colourOf(a)), sight(colourOf(b))];
  return Math.min(ciede2000(p, q), ciede2000(clampRgb(p), clampRgb(q)));
};
const contrast = (a: string, b: string): number => wcagContrast(a, b);
const lch = converter("lch65");

/** Any two categories can touch in a stack: those between them may be absent. */
const PAIRS: [Category, Category][] = CATEGORIES.flatMap((a, index) =>
  CATEGORIES.slice(index + 1).map((b): [Category, Category] => [a, b]),
);

describe.each<Scheme>(["light", "dark"])("%s", (scheme) => {
  const colours = CATEGORY_COLOURS[scheme];
  beforeEach(() => void (dark.value = scheme === "dark"));
  afterAll(() => void (dark.value = false));

  it.each(Object.entries(SIGHT))(
    "any two categories differ with %s sight, by colour or by pattern",
    (_, sight) => {
      for (const [a, b] of PAIRS) {
        const patterns = [categoryFill(a).pattern, categoryFill(b).pattern];
        if (patterns[0] !== patterns[1]) continue;
        expect(difference(colours[a], colours[b], sight), `${a} and ${b}`).toBeGreaterThanOrEqual(
          15,
        );
      }
    },
  );

  it("only communication, rounding and unattributed are told apart by pattern", () => {
    const patterned = CATEGORIES.filter((category) => categoryFill(category).pattern !== "plain");
    expect(patterned).toEqual(["communication", "rounding", "unattributed"]);
    expect(new Set(patterned.map((category) => categoryFill(category).pattern)).size).toBe(3);
  });

  it("rounding is quiet: grey, and no darker on its ground than other categories", () => {
    const ground = INKS[scheme].background;
    expect(lch(colourOf(colours.rounding)).c).toBeLessThan(6);
    const others = CATEGORIES.filter((category) => category !== "rounding").map((category) =>
      contrast(colours[category], ground),
    );
    expect(contrast(colours.rounding, ground)).toBeLessThan(Math.min(...others) * 1.05);
  });

  it("no run has a category's colour", () => {
    for (let run = 0; run < 7; run += 1) {
      for (const category of CATEGORIES) {
        if (categoryFill(category).pattern !== "plain") continue;
        expect(
          ciede2000(runColour(run), colours[category]),
          `run ${run} and ${category}`,
        ).toBeGreaterThan(9);
      }
    }
  });

  it.each(Object.entries(SIGHT))(
    "what can lie beside a category in a bar or a map differs with %s sight",
    (_, sight) => {
      const beside = {
        free: freeFill("free"),
        other: freeFill("other"),
        unreserved: freeFill("unreserved"),
        process: outsideFill("process_other"),
        others: outsideFill("others"),
      };
      const fills = Object.entries({
        ...beside,
        ...Object.fromEntries(CATEGORIES.map((category) => [category, categoryFill(category)])),
        frozen: fillOf({ category: "weights", trainable: false }),
      });
      for (const [name, one] of Object.entries(beside)) {
        for (const [other, fill] of fills) {
          // Unreserved memory has the ground's colour and an outline.
          if (
            name === other ||
            fill.pattern !== one.pattern ||
            (name === "unreserved" && other === "free")
          )
            continue;
          if (name === "free" && other === "unreserved") continue;
          expect(
            difference(one.colour, fill.colour, sight),
            `${name} and ${other}`,
          ).toBeGreaterThanOrEqual(15);
        }
      }
    },
  );

  it("free memory looks the same in every view, and not as memory in use", () => {
    const { free, used } = INKS[scheme];
    for (const sight of Object.values(SIGHT))
      expect(difference(free, used, sight)).toBeGreaterThan(15);
    expect(freeFill("largest")).toEqual(freeFill("free"));
    expect(freeFill("other")).toEqual({ ...freeFill("free"), pattern: "diagonal" });
    expect(freeFill("unreserved").colour).toBe(INKS[scheme].background);
  });

  it("rounding is dotted and unattributed hatched, frozen or not", () => {
    expect(fillOf({ category: "rounding", trainable: false }).pattern).toBe("dotted");
    expect(categoryFill("unattributed").pattern).toBe("hatched");
    expect(categoryFill("held_tensors").pattern).toBe("plain");
  });

  it("marks stand out from the background", () => {
    const minimum = Math.min(
      ...CATEGORIES.map((category) => contrast(colours[category], INKS[scheme].background)),
    );
    expect(minimum).toBeGreaterThanOrEqual(3);
    const layers = Array.from({ length: LAYERS_TOLD_APART }, (_, index) => layerColour(index));
    expect(
      Math.min(...layers.map((colour) => contrast(colour, INKS[scheme].background))),
    ).toBeGreaterThanOrEqual(3);
    expect(new Set(layers).size).toBe(LAYERS_TOLD_APART);
  });

  it("shades in sequence get lighter, every other one, and none is black or white", () => {
    const lightness = sequence(12).map((colour) => Number(/ (\d+)%\)$/.exec(colour)?.[1]));
    for (const [index, value] of lightness.entries())
      if (index >= 2) expect(value).toBeGreaterThan(lightness[index - 2] ?? NaN);
    expect(Math.min(...lightness)).toBeGreaterThan(20);
    expect(Math.max(...lightness)).toBeLessThan(90);
    expect(sequence(1)).toEqual([sequence(12)[0]]);
  });

  it("text is readable on both surfaces", () => {
    const { text, faint, accent, capacity, background, panel } = INKS[scheme];
    for (const ink of [text, faint, accent, capacity]) {
      for (const surface of [background, panel])
        expect(contrast(ink, surface), `${ink} on ${surface}`).toBeGreaterThanOrEqual(4.5);
    }
  });
});

it("a category keeps its hue in the dark", () => {
  for (const category of CATEGORIES) {
    const [light, dark] = [
      lch(colourOf(CATEGORY_COLOURS.light[category])),
      lch(colourOf(CATEGORY_COLOURS.dark[category])),
    ];
    if (Math.min(light.c, dark.c) < 10) continue;
    const turned = Math.abs((light.h ?? 0) - (dark.h ?? 0));
    expect(Math.min(turned, 360 - turned), category).toBeLessThan(25);
  }
});

describe("run colours", () => {
  it("are those of the Time Series tab and wrap with dashes", () => {
    expect(runColour(0)).toBe("#425066");
    dark.value = true;
    expect(runColour(0)).toBe("#8e98a3");
    dark.value = false;
    expect(runColour(8)).toBe(runColour(1));
    expect(runDash(1)).toEqual([]);
    expect(runDash(8)).toEqual([6, 3]);
  });
});

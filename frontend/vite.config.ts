import { fileURLToPath } from "node:url";

import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * What never holds in a plot of the page: it has linear scales, x horizontal, and no series,
 * points, legend or twin.
 */
const NEVER = [
  String.raw`showLegend|cursorFocus|cursorOnePt|cursor\._lock|cursor\.lock|cursor\.[xy]|legend\.live|drag\.y|drag\.setScale|mode == 2|i > 0|ms == 1`,
  String.raw`(?:\w+\.)?distr (?:== [234]|== 100|>= 3)|xScaleDistr == [234]|scaleX\.ori == 1|\w+\.from != null|axis\.label != null`,
  String.raw`src != null|syncKey != null|uni != null|cursor\.dataIdx == null`,
].join("|");
const ALWAYS = String.raw`showCursor|mode == 1|\w+\.distr == 1|scaleX\.ori == 0|src == null|e != null|\w+\.from == null|select\.show|pxAlign == 1`;
/** Functions that such a plot does not need. */
const IDLE =
  "drawSeries resetYSeries initSeries setLegend syncLegend addSeries delSeries setSeries setBand addBand delBand autoScaleX dblClick pub pubSync " +
  "accScale numAxisVals rangeNum clampScale timeAxisVals timeAxisVal timeAxisStamps timeSeriesVal timeSeriesStamp fmtDate tzDate legendStroke legendFill " +
  "cursorPointShow cursorPointSize cursorPointStroke cursorPointFill seriesPointsShow";
/** Parts of uPlot, and what takes their place. */
const CUTS: readonly (readonly [RegExp, string])[] = [
  ...IDLE.split(" ").map(
    (name) => [RegExp(String.raw`(?<=\n(\t*)function ${name}\().*\{[^]*?\n\1\}`), ") {}"] as const,
  ),
  [/(?<=const (?:linearPath|pointsPath) = )\w+\(\)/g, "null"],
  [/(?<=const (?:showLegend|showCursor|cursorFocus|cursorOnePt) = ).*/g, "0;"],
  [
    /const months = \[[^]*?(?=function zeroPad2)|const localTz = .*|genIncrs\(2, -53, 53, \[1\]\);/g,
    "",
  ],
  [/(?<=const _timeAxisStamps = )\[[^]*?\n\t\];/, "0;"],
  [/\/\/ closest pt values[^]*?(?=\/\/ if only using)/, ""],
  [/\(opts\.plugins \|\| \[\]\)\.forEach\(p => \{[^]*?\n\t\}\);/g, ""],
  [/(?<=\n\t)bands\.forEach\(b => \{[^]*?\n\t\}\);/, ""],
  [/const numFormatter = .*\nconst fmtNum = .*/, ""],
  [/const facet = \{[^]*?(?=const ySeriesOpts)/, "const gaps = 0;"],
  [/(?<=const ySeriesOpts = \{[^]*?)points: \{[^]*?\n\t\},/, "points: {},"],
  [/const syncOpts = [^]*?(?=const syncKey)/, ""],
  [/(?<=const syncKey = ).*|sync\.(?:un)?sub\(self\);|const sync = .*/g, "0;"],
  [/(?<=const (?:legend|markers) += ).*/g, "{};"],
  [/uPlot\.assign = assign;[^]*(?=export \{ uPlot as default \};)/, "uPlot.pxRatio = pxRatio;\n"],
  [RegExp(String.raw`(?<!const )\b(?:${NEVER})(?! = |\w)`, "g"), "false"],
  [RegExp(String.raw`(?<!const )\b(?:${ALWAYS})(?! = |\w)`, "g"), "true"],
];

/** Takes out of uPlot what the page does not use. */
const bareUPlot: Plugin = {
  name: "bare-uplot",
  transform(code, id) {
    if (!id.endsWith("/uPlot.esm.js")) return undefined;
    let bare = code;
    for (const [cut, instead] of CUTS) {
      if (bare.search(cut) < 0)
        throw new Error(`uPlot has no ${cut.source}: adapt vite.config.ts.`);
      bare = bare.replace(cut, instead);
    }
    return { code: bare, map: null };
  },
};

// One module, no other files: TensorBoard imports ./index.js, and its CSP allows inline styles but
// no foreign scripts.
export default defineConfig({
  plugins: [bareUPlot],
  build: {
    rollupOptions: {
      input: here("src/main.ts"),
      preserveEntrySignatures: "strict",
      output: { format: "es", entryFileNames: "index.js", inlineDynamicImports: true },
    },
    modulePreload: false,
    outDir: here("../tb_memplugin/static"),
    emptyOutDir: true,
    target: "es2022",
  },
  define: { "process.env.NODE_ENV": '"production"' },
  // One module graph for all files of a worker: no module keeps what one file leaves to the next.
  test: {
    environment: "node",
    isolate: false,
    include: ["tests/**/*.test.ts"],
    setupFiles: ["tests/setup.ts"],
  },
});

import { fileURLToPath } from "node:url";

import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Parts of uPlot, and what takes their place. */
const UNUSED: readonly (readonly [RegExp, string])[] = [
  [/(?<=const linearPath = )linear\(\)/, "null"],
  [/(?<=const pointsPath = )points\(\)/, "null"],
  [/uPlot\.assign = assign;[^]*(?=export \{ uPlot as default \};)/, "uPlot.pxRatio = pxRatio;\n"],
];

/** Drops uPlot's static members and its paths, with the functions that only they need: the page draws with painters of its own. */
const bareUPlot: Plugin = {
  name: "bare-uplot",
  transform(code, id) {
    if (!id.endsWith("/uPlot.esm.js")) return undefined;
    let bare = code;
    for (const [unused, instead] of UNUSED) {
      if (!unused.test(bare)) throw new Error(`uPlot has no ${unused.source}: adapt vite.config.ts.`);
      bare = bare.replace(unused, instead);
    }
    return { code: bare, map: null };
  },
};

// One module, no other files: TensorBoard imports ./index.js, and its CSP allows inline styles but no foreign scripts.
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
  test: { environment: "node", isolate: false, include: ["tests/**/*.test.ts"], setupFiles: ["tests/setup.ts"] },
});

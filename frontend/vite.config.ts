import { fileURLToPath } from "node:url";

import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Drops uPlot's static members, and with them the functions that only they need: the page draws with painters of its own. */
const bareUPlot: Plugin = {
  name: "bare-uplot",
  transform(code, id) {
    if (!id.endsWith("/uPlot.esm.js")) return undefined;
    const bare = code.replace(/\nuPlot\.assign = assign;[^]*\n(?=export \{ uPlot as default \};)/, "\nuPlot.pxRatio = pxRatio;\n");
    if (bare === code) throw new Error("uPlot's static members are not where they were: adapt vite.config.ts.");
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

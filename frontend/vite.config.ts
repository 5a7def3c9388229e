import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

// One module, no other files: TensorBoard imports ./index.js, and its CSP allows inline styles but no foreign scripts.
export default defineConfig({
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

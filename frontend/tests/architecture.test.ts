/** The direction of imports between the folders of src, as an allowlist. */

import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";

import { describe, expect, it } from "vitest";

const ALLOWED: Record<string, readonly string[]> = {
  main: ["views", "state", "api", "theme"],
  views: ["state", "charts", "theme", "model", "lib"],
  state: ["api", "model", "lib"],
  api: ["model", "lib"],
  model: ["lib"],
  charts: ["lib"],
  theme: ["model"],
  lib: [],
};

/** Packages a folder may use: the rest of the page does not know what draws it. */
const PACKAGES: Record<string, readonly string[]> = {
  main: ["preact", "uplot"],
  views: ["preact", "@preact/signals"],
  state: ["@preact/signals"],
  charts: ["uplot"],
};

const root = join(import.meta.dirname, "../src");
const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
  (name) => /\.tsx?$/.test(name) && !/\.(test|d)\.tsx?$/.test(name),
);

const folderOf = (name: string): string => (name.includes(sep) ? (name.split(sep)[0] as string) : name.replace(/\.tsx?$/, ""));

function importsOf(name: string): string[] {
  const text = readFileSync(join(root, name), "utf8");
  return [...text.matchAll(/(?:from|import)\s+"([^"]+)"/g)].map((found) => found[1] as string);
}

describe("imports", () => {
  it.each(files)("%s imports only what its folder may", (name) => {
    const folder = folderOf(name);
    for (const target of importsOf(name)) {
      if (target.startsWith(".")) {
        const path = relative(root, join(root, name, "..", target));
        const other = path.split(sep)[0] as string;
        if (other !== folder) expect(ALLOWED[folder] ?? [], `${name} imports ${target}`).toContain(other);
      } else {
        const known = (PACKAGES[folder] ?? []).some((one) => target === one || target.startsWith(`${one}/`));
        expect(known, `${name} imports ${target}`).toBe(true);
      }
    }
  });

  it("knows every folder", () => {
    expect(new Set(files.map(folderOf))).toEqual(new Set(Object.keys(ALLOWED)));
  });
});

describe("text from strangers", () => {
  it.each(files)("%s never becomes markup", (name) => {
    expect(readFileSync(join(root, name), "utf8")).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/);
  });
});

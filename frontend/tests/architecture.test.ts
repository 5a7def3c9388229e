/**
 * The direction of imports between the folders of src: an allowlist, no cycles, no imports from one
 * tab into another. The size of each folder in tokens, and the length of lines.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";

import ts from "typescript";
import { describe, expect, it } from "vitest";

const ALLOWED: Record<string, readonly string[]> = {
  main: ["views", "state", "api"],
  views: ["state", "charts", "theme", "model", "schema", "lib"],
  state: ["api", "model", "theme", "schema", "lib"],
  api: ["model", "schema", "lib"],
  model: ["schema", "lib"],
  charts: ["lib"],
  theme: ["model", "schema"],
  schema: ["lib"],
  lib: [],
};

/** Packages a folder may use: the rest of the page does not know what draws it. */
const PACKAGES: Record<string, readonly string[]> = {
  main: ["preact", "uplot"],
  views: ["preact", "@preact/signals"],
  state: ["@preact/signals"],
  theme: ["@preact/signals"],
  charts: ["uplot"],
};

/**
 * Folders of views that are not tabs: the frame around the tabs may import all of them, the shared
 * parts none.
 */
const FRAME = "app";
const SHARED = "shared";

/**
 * Tokens of each folder, as TypeScript's scanner reads them: comments and space do not count. A
 * folder may have 5 % more; raise a number on purpose only, in a commit of its own.
 */
const TOKENS: Record<string, number> = {
  main: 280,
  views: 100_918,
  state: 12_234,
  api: 3_113,
  model: 32_014,
  charts: 18_707,
  theme: 1_052,
  lib: 3_760,
};
const SLACK = 1.05;

/** Columns of a line; lines with strings or URLs may be longer. */
const COLUMNS = 100;

const root = join(import.meta.dirname, "../src");
const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
  (name) => /\.tsx?$/.test(name) && !name.endsWith(".d.ts"),
);

const folderOf = (name: string): string =>
  name.includes(sep) ? (name.split(sep)[0] as string) : name.replace(/\.tsx?$/, "");

/** What a module imports, type-only and deferred imports and re-exports included. */
function importsOf(name: string): string[] {
  const text = readFileSync(join(root, name), "utf8");
  return [...text.matchAll(/(?:\bfrom\s+|\bimport\s+|\bimport\()"([^"]+)"/g)].map(
    (found) => found[1] as string,
  );
}

/** The modules of src that a module imports. */
function modulesOf(name: string): string[] {
  return importsOf(name)
    .filter((target) => target.startsWith("."))
    .flatMap((target) => {
      const path = join(root, name, "..", target);
      return [`${path}.ts`, `${path}.tsx`]
        .filter((one) => existsSync(one))
        .map((one) => relative(root, one));
    });
}

/** Any cycle that can be reached from a module; empty if there is none. */
function cycleFrom(
  start: string,
  graph: ReadonlyMap<string, readonly string[]>,
  done: Set<string>,
): string[] {
  const path: string[] = [];
  const visit = (name: string): string[] => {
    if (path.includes(name)) return [...path.slice(path.indexOf(name)), name];
    if (done.has(name)) return [];
    path.push(name);
    for (const next of graph.get(name) ?? []) {
      const found = visit(next);
      if (found.length > 0) return found;
    }
    path.pop();
    done.add(name);
    return [];
  };
  return visit(start);
}

const graph = new Map(files.map((name) => [name, modulesOf(name)]));

describe("imports", () => {
  it.each(files)("%s imports only what its folder may", (name) => {
    const folder = folderOf(name);
    for (const target of importsOf(name)) {
      if (target.startsWith(".")) {
        const path = relative(root, join(root, name, "..", target));
        const other = path.split(sep)[0] as string;
        if (other !== folder)
          expect(ALLOWED[folder] ?? [], `${name} imports ${target}`).toContain(other);
      } else {
        const known = (PACKAGES[folder] ?? []).some(
          (one) => target === one || target.startsWith(`${one}/`),
        );
        expect(known, `${name} imports ${target}`).toBe(true);
      }
    }
  });

  it("knows every folder", () => {
    expect(new Set(files.map(folderOf))).toEqual(new Set(Object.keys(ALLOWED)));
  });

  it("form no cycle", () => {
    const done = new Set<string>();
    for (const name of files) expect(cycleFrom(name, graph, done)).toEqual([]);
    expect(done).toEqual(new Set(files));
  });

  it("finds a cycle where there is one", () => {
    const made = new Map([
      ["a", ["b"]],
      ["b", ["c", "d"]],
      ["c", []],
      ["d", ["b"]],
    ]);
    expect(cycleFrom("a", made, new Set())).toEqual(["b", "d", "b"]);
  });
});

describe("views", () => {
  const views = files.filter((name) => folderOf(name) === "views");
  const tabOf = (name: string): string => name.split(sep)[1] as string;

  it.each(views)("%s imports from no tab but its own", (name) => {
    const own = tabOf(name);
    if (own === FRAME) return;
    const others = (graph.get(name) ?? []).filter(
      (one) => folderOf(one) === "views" && ![own, SHARED].includes(tabOf(one)),
    );
    expect(others).toEqual([]);
  });

  it("all lie in the folder of a tab, of the frame or of the shared parts", () => {
    expect(views.filter((name) => name.split(sep).length < 3)).toEqual([]);
  });
});

/** Tokens of a module. The scanner must be told where a template goes on after its `${…}`. */
function tokensOf(name: string): number {
  const variant = name.endsWith("x") ? ts.LanguageVariant.JSX : ts.LanguageVariant.Standard;
  const text = readFileSync(join(root, name), "utf8");
  const scanner = ts.createScanner(ts.ScriptTarget.Latest, true, variant, text);
  /** For each open template, the braces open in its `${…}`. */
  const open: number[] = [];
  for (let count = 0; ; count += 1) {
    const kind = scanner.scan();
    const braces = open.at(-1);
    if (kind === ts.SyntaxKind.EndOfFileToken) return count;
    if (kind === ts.SyntaxKind.TemplateHead) open.push(0);
    else if (braces === undefined) continue;
    else if (kind === ts.SyntaxKind.OpenBraceToken) open[open.length - 1] = braces + 1;
    else if (kind !== ts.SyntaxKind.CloseBraceToken) continue;
    else if (braces > 0) open[open.length - 1] = braces - 1;
    else if (scanner.reScanTemplateToken(false) === ts.SyntaxKind.TemplateTail) open.pop();
  }
}

const written = files.filter((name) => folderOf(name) !== "schema");

describe("size", () => {
  const sizes = new Map<string, number>();
  for (const name of written) {
    const folder = folderOf(name);
    sizes.set(folder, (sizes.get(folder) ?? 0) + tokensOf(name));
  }

  it.each(Object.entries(TOKENS))("of %s is at most %d tokens and 5 %", (folder, budget) => {
    expect(sizes.get(folder)).toBeLessThanOrEqual(budget * SLACK);
  });

  it("has a budget for each folder", () => {
    expect([...sizes.keys()].sort()).toEqual(Object.keys(TOKENS).sort());
  });

  it.each(written)("%s has no long lines", (name) => {
    const lines = readFileSync(join(root, name), "utf8").split("\n");
    const long = lines.filter((line) => line.length > COLUMNS && !/["'`]|:\/\//.test(line));
    expect(long).toEqual([]);
  });
});

describe("text from strangers", () => {
  it.each(files)("%s never becomes markup", (name) => {
    expect(readFileSync(join(root, name), "utf8")).not.toMatch(
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/,
    );
  });
});

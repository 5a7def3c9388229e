import { describe, expect, it } from "vitest";

import {
  icicle,
  layerTree,
  neighbour,
  tensorsAtPeak,
  tensorsOfMap,
  wayTo,
  type Cell,
  type Tensors,
  type TreeNode,
} from "../../src/model/layer-tree";
import { layerFigures, type LayerFigures } from "../../src/model/layers";
import type { MemoryMap } from "../../src/model/memory-map";
import { MIB, TIMELINE, column } from "./timeline-cases";
import type { Category, HeldTensorGroup, LedgerRow } from "../../src/schema";

const row = (layer: string | null, category: Category, bytes: number): LedgerRow => ({
  ...{ layer, category, bytes, trainable: null, rounding_bytes: null },
});
const figures = (...rows: LedgerRow[]): LayerFigures[] => layerFigures(null, rows);
const NONE: Tensors = new Map();

const NET = figures(
  row("net/block1_attention", "activations", 60),
  row("net/block1_attention", "workspace", 40),
  row("net/block1_attention/query", "weights", 8),
  row("net/block1_wide", "activations", 30),
  row("net/head", "weights", 20),
  row(null, "inputs", 5),
);

const outline = ({ name, bytes, children }: TreeNode): unknown =>
  children.length === 0 ? [name, bytes] : [name, bytes, children.map(outline)];

describe("the tree of layers", () => {
  it("goes from all in use by the parts of the paths and by blocks to categories, largest first", () => {
    expect(outline(layerTree(NET, NONE, "none"))).toEqual([
      ...["in use", 163],
      [
        [
          ...["net", 158],
          [
            [
              ...["block1", 138],
              [
                [
                  ...["block1_attention", 108],
                  [
                    ["activations", 60],
                    ["workspace", 40],
                    ["query", 8, [["weights", 8]]],
                  ],
                ],
                ["block1_wide", 30, [["activations", 30]]],
              ],
            ],
            ["head", 20, [["weights", 20]]],
          ],
        ],
        ["not tied to a layer", 5, [["inputs", 5]]],
      ],
    ]);
  });

  it("sums the categories of each node, and knows each layer", () => {
    const [net] = layerTree(NET, NONE, "none").children as [TreeNode];
    expect(net.parts).toEqual([
      { category: "activations", bytes: 90 },
      { category: "workspace", bytes: 40 },
      { category: "weights", bytes: 28 },
    ]);
    const [block, head] = net.children as [TreeNode, TreeNode];
    expect([net.layer, block.layer, head.layer?.path]).toEqual([null, null, "net/head"]);
  });

  it("has groups by type above the layers", () => {
    const dense = NET.map((layer) => ({
      ...layer,
      type: layer.path === "net/head" ? "Dense" : "Other",
    }));
    const names = layerTree(dense, NONE, "type").children.map(({ name, bytes }) => [name, bytes]);
    expect(names).toEqual([
      ["Other", 138],
      ["Dense", 20],
      ["not tied to a layer", 5],
    ]);
  });

  it("has one key for each node", () => {
    const keys = (node: TreeNode): string[] => [node.key, ...node.children.flatMap(keys)];
    for (const grouping of ["none", "type"] as const) {
      const all = keys(
        layerTree([...NET, ...figures(row("net/block1", "weights", 1))], NONE, grouping),
      );
      expect(new Set(all).size).toBe(all.length);
    }
  });

  it("finds the way to a node, and without one the root", () => {
    const tree = layerTree(NET, NONE, "none");
    expect(wayTo(tree, "net/block1_attention").map(({ name }) => name)).toEqual([
      "in use",
      "net",
      "block1",
      "block1_attention",
    ]);
    expect(wayTo(tree, "gone")).toEqual([tree]);
  });
});

describe("tensors in the tree", () => {
  it("are at a failure the chunks of its map, with the shapes of known groups of their size", () => {
    const column = (...values: number[]): Float64Array => Float64Array.from(values);
    const owner = { layer: "net/a", category: "activations" as const, trainable: true };
    const map = {
      ...{
        rows: 4,
        states: ["in_use", "free"],
        sources: ["trace"],
        owners: [owner, { ...owner, category: "workspace" }],
      },
      ...{
        bytes: column(512, 512, 256, 1024),
        requested_bytes: column(400, 400, NaN, 1000),
        state: column(0, 0, 0, 1),
      },
      ...{
        owner: column(0, 1, 0, NaN),
        source: column(0, 0, 0, NaN),
        since: column(3, 3, 3, NaN),
        address: column(0, 512, 1024, 1280),
      },
    } as unknown as MemoryMap;
    const known = [
      {
        layer: "net/a",
        category: "activations" as const,
        shape: [10, 10],
        dtype: "float32",
        count: 2,
        bytes: 800,
      },
    ];
    const layers = figures(row("net/a", "activations", 656), row("net/a", "workspace", 400));
    expect(
      outline(layerTree(layers, tensorsOfMap(map, known), "none").children[0] as TreeNode),
    ).toEqual([
      ...["net", 1056],
      [
        [
          ...["a", 1056],
          [
            ["(10, 10) float32", 400],
            ["workspace", 400],
            ["activations", 256],
          ],
        ],
      ],
    ]);
  });

  const layers = figures(
    row("net/a", "weights", 8 * MIB),
    row("net/a", "activations", 4.5 * MIB),
    row("net/b", "workspace", MIB),
  );

  it("are those of the timeline at its peak, with shapes; what they leave of a category stays", () => {
    const [net] = layerTree(layers, tensorsAtPeak(TIMELINE), "none").children as [TreeNode];
    expect(outline(net)).toEqual([
      ...["net", 13.5 * MIB],
      [
        [
          ...["a", 12.5 * MIB],
          [
            ["allocated before the step", 8 * MIB],
            ["(8, 128, 1024) float32", 4 * MIB],
            ["other activations", 0.5 * MIB],
          ],
        ],
        // 2 MiB of tensors are not a part of 1 MiB: they are of another moment.
        ["b", MIB, [["workspace", MIB]]],
      ],
    ]);
    expect(net.children[0]?.children[1]?.facts()[0]).toBe("net/a: activations");
  });
});

const shown = (cells: readonly Cell[]): unknown[] =>
  cells.map(({ node, level, x, width }) => [node.name, level, x, width]);

describe("held tensors", () => {
  it("of one shape are one, with what holds them", () => {
    const timeline = {
      ...TIMELINE,
      rows: 3,
      owners: [{ layer: null, category: "held_tensors" as const, trainable: null }],
      ...{ start: column(0, 0, 0), end: column(4, 4, 4), bytes: column(MIB, MIB, 2 * MIB) },
      ...{ count: column(1, 1, 1), owner: column(0, 0, 0), op: column(0, 0, 0) },
      ...{ tensor: column(0, 1, 2), rounding_bytes: column(0, 0, 0), shape: column(0, 0, 1) },
      ...{ address: column(NaN, NaN, NaN), line: column(NaN, NaN, NaN) },
      shapes: [
        { shape: [64, 512], dtype: "float32" },
        { shape: [9], dtype: "int64" },
      ],
    };
    const held = [
      {
        ...{ shape: [64, 512], dtype: "float32", count: 2, bytes: 2 * MIB },
        ...{ held_by: "list `history`", line: null, retaining_path: null },
        category: "held_tensors" as const,
      },
    ] as unknown as HeldTensorGroup[];
    const named = tensorsAtPeak(timeline, held).get(null) ?? [];
    expect(named.map(({ name, bytes }) => [name, bytes])).toEqual([
      ["2 × (64, 512) float32, held by list `history`", 2 * MIB],
      ["(9) int64", 2 * MIB],
    ]);
  });
});

describe("the icicle", () => {
  const tree = layerTree(NET, NONE, "none");

  it("gives each node its share of the width, below its parent", () => {
    expect(shown(icicle(tree, 163, 4))).toEqual([
      ["in use", 0, 0, 163],
      ["net", 1, 0, 158],
      ["not tied to a layer", 1, 158, 5],
      ["block1", 2, 0, 138],
      ["head", 2, 138, 20],
      ["inputs", 2, 158, 5],
      ["block1_attention", 3, 0, 108],
      ["block1_wide", 3, 108, 30],
      ["weights", 3, 138, 20],
    ]);
  });

  it("draws no more cells than can be seen of 300 layers with 10,000 tensors, and loses no byte", () => {
    const paths = Array.from({ length: 300 }, (_, index) => `net/layer${index}`);
    const many = figures(
      ...paths.map((path, index) => row(path, "activations", 34 * (300 + index))),
    );
    const tensor = (bytes: number) => ({
      category: "activations" as const,
      bytes,
      name: null,
      facts: () => [],
    });
    const all: Tensors = new Map(
      paths.map((path, index) => [path, Array.from({ length: 34 }, () => tensor(300 + index))]),
    );
    const start = performance.now();
    const big = layerTree(many, all, "none");
    const cells = icicle(big, 1100, 6);
    expect(performance.now() - start).toBeLessThan(500);
    expect(cells.length).toBeLessThan(4 * (1100 / 5));
    const layers = cells.filter(({ level }) => level === 2);
    expect(layers.reduce((sum, { node }) => sum + node.bytes, 0)).toBe(big.bytes);
    expect(layers.at(-1)?.node.name).toMatch(/^\d+ more$/);
    expect(layers.at(-1)?.node.children).toEqual([]);
  });

  it("is walked with the arrow keys", () => {
    const cells = icicle(tree, 163, 4);
    const walk = (...keys: string[]): string[] => {
      let now = 0;
      return keys.map((key) => {
        now = neighbour(cells, now, key) ?? now;
        return cells[now]?.node.name ?? "";
      });
    };
    expect(
      walk(
        "ArrowDown",
        "ArrowDown",
        "ArrowRight",
        "ArrowDown",
        "ArrowUp",
        "ArrowLeft",
        "ArrowLeft",
        "ArrowUp",
      ),
    ).toEqual(
      ["net", "block1", "head", "weights", "head", "block1", "block1", "net"], // prettier-ignore
    );
    expect(walk("ArrowRight", "Enter")).toEqual(["in use", "in use"]);
    expect(neighbour(cells, 8, "ArrowDown")).toBeNull();
  });
});

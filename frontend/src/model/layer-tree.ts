/**
 * The tree of a model's layers, down to their tensors, with the bytes at one moment; and its
 * icicle.
 */

import { formatCount, grouped, largestFirst, totalBytes } from "../lib/bytes";
import { categoryLabel } from "./categories";
import { blockOf, groupTitle, type Grouping, type LayerFigures } from "./layers";
import { chunkFacts, ownerOf, stateOf, type MemoryMap } from "./memory-map";
import { at } from "./overview";
import { NOT_TIED, shortName } from "./run";
import { holderOf } from "./snapshot";
import {
  isLive,
  ownerOfRow,
  rowFacts,
  shapeOfRow,
  shapeText,
  whatText,
  type Timeline,
} from "./timeline";
import {
  CATEGORIES,
  type Category,
  type ChunkOwner,
  type HeldTensorGroup,
  type TensorGroup,
} from "../schema";

/** What holds bytes of a layer at the moment; a name of null: its shape is unknown. */
interface Tensor {
  category: Category;
  bytes: number;
  name: string | null;
  facts: () => string[];
}

/** The known tensors by layer. */
export type Tensors = ReadonlyMap<string | null, readonly Tensor[]>;

export interface TreeNode {
  /** Unique in the tree, and the same of every step. */
  key: string;
  name: string;
  /** The layer that it is or, of a tensor, belongs to. */
  layer: LayerFigures | null;
  bytes: number;
  /** Largest first, as the children. */
  parts: readonly { category: Category; bytes: number }[];
  children: readonly TreeNode[];
  facts: () => string[];
}

/** Whether its bytes include those of other layers, which have rows of their own in the table. */
const isNested = ({ children }: TreeNode): boolean =>
  children.some((child) => child.children.length > 0);

/** The name in a cell; "block1_attention/…" for a layer with those inside it. */
export const cellName = (node: TreeNode): string =>
  node.layer !== null && isNested(node) ? `${node.name}/…` : node.name;

/**
 * Which figure of the layer a cell's bytes are; those of several layers, or of one of several
 * tensors, are named by the key.
 */
export function cellFigure(node: TreeNode): string {
  const { key, layer, parts, children } = node;
  if (children.length > 0) return layer !== null && !isNested(node) ? "total" : `within:${key}`;
  const [category] = parts.map((part) => part.category);
  return key.endsWith(`/${category}:`) ? String(category) : `tensor:${key}`;
}

const NO_FACTS = (): string[] => [];

function nodeOf(
  key: string,
  name: string,
  layer: LayerFigures | null,
  below: readonly TreeNode[],
): TreeNode {
  const children = below.filter(({ bytes }) => bytes > 0).sort(largestFirst);
  const sums = grouped(
    children.flatMap(({ parts }) => parts),
    ({ category }) => category,
  );
  const parts = [...sums]
    .map(([category, all]) => ({ category, bytes: totalBytes(all) }))
    .sort(largestFirst);
  return { key, name, layer, bytes: totalBytes(children), parts, children, facts: NO_FACTS };
}

/**
 * A layer's own bytes: its tensors where they are known, the rest by category. They sum to its
 * total.
 */
function leavesOf(layer: LayerFigures, key: string, tensors: Tensors): TreeNode[] {
  const own = tensors.get(layer.path) ?? [];
  return CATEGORIES.flatMap((category) => {
    const leaf = (
      id: number | string,
      name: string,
      bytes: number,
      facts = NO_FACTS,
    ): TreeNode => ({
      ...{ key: `${key}/${category}:${id}`, name, layer, bytes, facts },
      ...{ parts: [{ category, bytes }], children: [] },
    });
    const known = own.filter((tensor) => tensor.category === category);
    const left = layer.bytes[category] - totalBytes(known);
    // Of another moment than the layer's bytes.
    if (known.length === 0 || left < 0)
      return [leaf("", categoryLabel(category), layer.bytes[category])];
    const leaves = known.map(({ name, bytes, facts }, index) =>
      leaf(index, name ?? categoryLabel(category), bytes, facts),
    );
    return [...leaves, leaf("rest", `other ${categoryLabel(category)}`, left)];
  });
}

/** A part of the paths: a layer, or what several layers' paths begin with. */
interface Branch {
  path: string;
  layer: LayerFigures | null;
  below: Map<string, Branch>;
}

function branchesOf(layers: readonly LayerFigures[]): Branch {
  const root: Branch = { path: "", layer: null, below: new Map() };
  for (const layer of layers) {
    let branch = root;
    for (const part of (layer.path ?? "").split("/")) {
      const next = branch.below.get(part) ?? {
        path: branch === root ? part : `${branch.path}/${part}`,
        layer: null,
        below: new Map(),
      };
      branch.below.set(part, next);
      branch = next;
    }
    branch.layer = layer;
  }
  return root;
}

function childrenOf({ path, layer, below }: Branch, group: string, tensors: Tensors): TreeNode[] {
  const blocks = new Map<string, TreeNode[]>();
  for (const branch of below.values()) {
    const key = `${group}${branch.path || NOT_TIED}`;
    const node = nodeOf(
      key,
      shortName(branch.path) || NOT_TIED,
      branch.layer,
      childrenOf(branch, group, tensors),
    );
    // What has no block in its own name stands alone.
    const block = blockOf(branch.path) === path ? branch.path : blockOf(branch.path);
    blocks.set(block, [...(blocks.get(block) ?? []), node]);
  }
  const leaves = layer === null ? [] : leavesOf(layer, `${group}${path}`, tensors);
  return [
    ...leaves,
    // A block of one layer, or of all of them, would only repeat it.
    ...[...blocks].flatMap(([block, nodes]) =>
      nodes.length === 1 || blocks.size === 1
        ? nodes
        : [nodeOf(`${group}${block}_`, shortName(block), null, nodes)],
    ),
  ];
}

/**
 * Everything in use at the moment; layers by their paths, below their type or side where they are
 * grouped so.
 */
export function layerTree(
  layers: readonly LayerFigures[],
  tensors: Tensors,
  grouping: Grouping,
): TreeNode {
  const groups = grouped(layers, (layer) =>
    grouping === "none" || grouping === "block" ? "" : groupTitle(layer, grouping),
  );
  const below = [...groups].flatMap(([title, own]) => {
    const children = childrenOf(branchesOf(own), title && `${title}:`, tensors);
    return title === "" ? children : [nodeOf(`${title}:`, title, null, children)];
  });
  return nodeOf("", "in use", null, below);
}

/** From the root to the node of a key; the root alone if there is none. */
export function wayTo(root: TreeNode, key: string): TreeNode[] {
  const search = (node: TreeNode): TreeNode[] | null => {
    if (node.key === key) return [node];
    for (const child of node.children) {
      const way = search(child);
      if (way) return [node, ...way];
    }
    return null;
  };
  return search(root) ?? [root];
}

export interface Cell {
  node: TreeNode;
  level: number;
  x: number;
  width: number;
  /** Whether it has all bytes of the cell above it, which shows them. */
  alone: boolean;
}

/** Narrower cells than this are one: neither seen nor hit. */
const LEAST_WIDTH = 5;

/**
 * Cells level by level, each as wide as its share of the root's bytes, largest first; small ones of
 * a parent are "12 more".
 */
export function icicle(root: TreeNode, width: number, levels: number): Cell[] {
  const cells: Cell[] = [{ node: root, level: 0, x: 0, width, alone: false }];
  // Grows while it is read.
  for (const { node, level, x, width: room } of cells) {
    if (level + 1 >= levels || node.bytes <= 0) continue;
    const small = node.children.findIndex(({ bytes }) => (bytes / node.bytes) * room < LEAST_WIDTH);
    const rest = small < 0 ? [] : node.children.slice(small);
    const shown = node.children.slice(0, node.children.length - rest.length);
    const more = {
      ...nodeOf(`${node.key}/more`, `${formatCount(rest.length)} more`, node.layer, rest),
      children: [],
    };
    let from = x;
    for (const child of [...shown, ...(rest.length > 1 ? [more] : rest)]) {
      const wide = (child.bytes / node.bytes) * room;
      const alone = child.bytes === node.bytes;
      if (wide >= 1) cells.push({ node: child, level: level + 1, x: from, width: wide, alone });
      from += wide;
    }
  }
  return cells;
}

/**
 * The cell that an arrow key leads to, from parent to child and to the neighbour of the same level;
 * null if there is none.
 */
export function neighbour(cells: readonly Cell[], from: number, key: string): number | null {
  const cell = cells[from];
  const move = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: 0, ArrowRight: 0 }[key];
  if (!cell || move === undefined) return null;
  const to =
    move === 0
      ? from + (key === "ArrowLeft" ? -1 : 1)
      : cells.findIndex(
          ({ level, x, width }) =>
            level === cell.level + move && (move > 0 ? x >= cell.x - 0.01 : x + width > cell.x),
        );
  const found = cells[to];
  const inside = found && (move <= 0 || found.x < cell.x + cell.width);
  return inside && found.level === cell.level + move ? to : null;
}

/**
 * The tensors that are live at the peak of a traced step; their rounding is not among them. Held
 * tensors of one shape are one: "335 × (64, 512) float32, held by list `history`".
 */
export function tensorsAtPeak(timeline: Timeline, held: readonly HeldTensorGroup[] = []): Tensors {
  const live = [...timeline.start.keys()].filter((row) => isLive(timeline, row, timeline.peak));
  const all = live.map((row) => {
    const { layer, category } = ownerOfRow(timeline, row);
    const shape = shapeOfRow(timeline, row);
    const name = shape ? shapeText(shape) : shortName(whatText(timeline, row));
    const bytes = at(timeline.bytes, row) ?? 0;
    return { layer, category, name, bytes, shape, facts: () => rowFacts(timeline, row) };
  });
  const ofShape = [...grouped(all, (one) => `${one.layer ?? ""} ${one.category} ${one.name}`)];
  const merged = ofShape.flatMap(([, same]) => {
    const [first] = same;
    if (first?.category === "rounding") return [];
    if (first?.category !== "held_tensors" || same.length === 1) return same;
    const holder = first.shape && holderOf(held, first.shape);
    const name = `${formatCount(same.length)} × ${first.name}`;
    return [
      {
        ...first,
        name: holder === null ? name : `${name}, held by ${holder}`,
        bytes: totalBytes(same),
      },
    ];
  });
  return grouped(merged, ({ layer }) => layer);
}

/**
 * The chunks of a memory map whose owner is known, by what was requested; `known` are groups of its
 * tensors with shapes.
 */
export function tensorsOfMap(map: MemoryMap, known: readonly TensorGroup[]): Tensors {
  const keyOf = (owner: Pick<ChunkOwner, "layer" | "category">, bytes: number): string =>
    JSON.stringify([owner.layer, owner.category, bytes]);
  const names = new Map(
    known.map((group) => [keyOf(group, group.bytes / group.count), shapeText(group)]),
  );
  const all = [...map.bytes.keys()].flatMap((chunk) => {
    const owner = stateOf(map, chunk) === "in_use" ? ownerOf(map, chunk) : null;
    const bytes = at(map.requested_bytes, chunk) ?? at(map.bytes, chunk) ?? 0;
    const facts = (): string[] => chunkFacts(map, chunk).facts;
    if (owner === null) return [];
    const name = names.get(keyOf(owner, bytes)) ?? null;
    return [{ layer: owner.layer, category: owner.category, name, bytes, facts }];
  });
  return grouped(all, ({ layer }) => layer);
}

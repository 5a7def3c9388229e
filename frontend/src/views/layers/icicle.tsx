/** The icicle of the layers, as buttons that zoom in, and saved as a drawing. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { LETTER } from "../../charts/layout";
import { formatBytes, formatShare } from "../../lib/bytes";
import { partsText } from "../../model/categories";
import {
  cellFigure,
  cellName,
  icicle,
  neighbour,
  wayTo,
  type Cell,
  type TreeNode,
} from "../../model/layer-tree";
import { fillOf, inks, type Fill } from "../../theme/palette";
import { useSize, useStore, useChoices } from "../shared/context";
import { Patterns, SvgDrawing, svgFill } from "../shared/export";
import { tipOf } from "../shared/tips";

const LEAST_ROW = 24;
const MOST_ROW = 50;
const MARGINS = 12;

/** The name of a cell and its bytes, neither of them if the name does not fit. */
function labels({ node, width, alone }: Cell): string[] {
  const both = [cellName(node), ...(alone ? [] : [formatBytes(node.bytes)])];
  return (
    [both, both.slice(0, 1)].find((texts) => texts.join("  ").length * LETTER + MARGINS <= width) ??
    []
  );
}

/** Frozen layers have the diagonal pattern in every view. */
const fillsOf = ({ parts, layer }: TreeNode): Fill[] =>
  parts.map(({ category }) =>
    fillOf({ category, trainable: layer?.trainable === false ? false : null }),
  );

function CellButton({ cell, height, total, tabStop, open }: CellProps) {
  const { layer, category } = useChoices();
  const { node, level, x, width } = cell;
  const { key, bytes, parts, children } = node;
  const name = cellName(node);
  const [label, size] = labels(cell);
  const fills = fillsOf(node);
  const isTensor = children.length === 0;
  const selected = layer !== null && node.layer?.path === layer && !isTensor;
  const share = formatShare(bytes / total);
  const made = isTensor ? node.facts() : [partsText(parts)];
  const tip = tipOf(
    bytes,
    `${isTensor ? name : (node.layer?.path ?? name)}, ${share} of what is in use`,
    ...made,
  );
  const muted = category !== null && !parts.some((part) => part.category === category);
  return (
    <button
      type="button"
      role="treeitem"
      class={`cell${isTensor ? " tensor" : ""}${muted ? " muted" : ""}`}
      aria-level={level + 1}
      aria-selected={selected}
      {...(!isTensor && { "aria-expanded": true })}
      aria-label={`${name} ${formatBytes(bytes)}, ${share}`}
      tabIndex={tabStop ? 0 : -1}
      style={{
        left: `${x}px`,
        top: `${level * height}px`,
        width: `${width}px`,
        height: `${height}px`,
        "--fill": fills[0]?.colour,
      }}
      data-node={key}
      data-figure={cellFigure(node)}
      data-bytes={bytes}
      data-layer={node.layer?.path ?? ""}
      data-tip={tip}
      onClick={() => open(node)}
    >
      <span class="cell-name">{label} </span>
      {size !== undefined && <span class="small figure">{size}</span>}
      <span class="area-parts" aria-hidden="true">
        {parts.map((part, index) => (
          <i
            key={part.category}
            class={`fill ${fills[index]?.pattern ?? ""}`}
            style={{ "--fill": fills[index]?.colour, width: `${(part.bytes / bytes) * 100}%` }}
          />
        ))}
      </span>
    </button>
  );
}

interface CellProps {
  cell: Cell;
  height: number;
  total: number;
  tabStop: boolean;
  open: (node: TreeNode) => void;
}

const rowsOf = (cells: readonly Cell[], height: number): number =>
  Math.min(height / ((cells.at(-1)?.level ?? 0) + 1), MOST_ROW);

/**
 * The zoomed node with those above it, cells below it, and the handlers that zoom; the zoomed cell
 * gets the focus.
 */
function useZoom(tree: TreeNode) {
  const { host, width, height } = useSize();
  const [zoom, setZoom] = useState("");
  const moved = useRef(false);
  const way = useMemo(() => wayTo(tree, zoom), [tree, zoom]);
  const root = way.at(-1) ?? tree;
  const cells = useMemo(() => {
    const levels = Math.floor(height / LEAST_ROW);
    if (root !== tree) return icicle(root, width, levels);
    // The line above says the sum of all.
    const [, ...below] = icicle(root, width, levels + 1);
    return below.map((cell) => ({ ...cell, level: cell.level - 1 }));
  }, [root, tree, width, height]);
  const focus = (index: number): void =>
    host.current?.querySelectorAll<HTMLElement>(".cell")[index]?.focus();
  useEffect(() => {
    // What had the focus is another cell now, or gone.
    if (moved.current) focus(0);
    moved.current = false;
  }, [root.key]);
  const zoomTo = (key: string) => {
    moved.current = true;
    setZoom(key);
  };
  const out = () => zoomTo(way.at(-2)?.key ?? "");
  const onKeyDown = (event: KeyboardEvent) => {
    const now = cells.findIndex(
      ({ node }) => node.key === (event.target as HTMLElement).dataset.node,
    );
    const next = neighbour(cells, now, event.key);
    if (event.key === "Escape" && way.length > 1) out();
    else if (next !== null) focus(next);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return { host, way, root, cells, row: rowsOf(cells, height), zoomTo, out, onKeyDown };
}

/** `moment` is when the tree's bytes are in use; `figure` names their sum. */
export function Icicle({
  tree,
  moment,
  figure,
  source,
}: {
  tree: TreeNode;
  moment: string;
  figure: string;
  source: string;
}) {
  const store = useStore();
  const { host, way, root, cells, row, zoomTo, out, onKeyDown } = useZoom(tree);
  const [stop, setStop] = useState("");
  const open = (node: TreeNode) => {
    if (node.layer?.path) store.choose({ layer: node.layer.path });
    if (node === root) out();
    else if (node.children.length > 0) zoomTo(node.key);
  };
  const tabStop = cells.some(({ node }) => node.key === stop) ? stop : cells[0]?.node.key;
  return (
    <div class="icicle">
      <nav class="small" aria-label="Zoom of the icicle">
        {way.map((node, index) => (
          <button
            key={node.key}
            type="button"
            class="link"
            disabled={index === way.length - 1}
            onClick={() => zoomTo(node.key)}
          >
            {index === 0 ? `${node.name} ${moment}` : cellName(node)}
          </button>
        ))}{" "}
        {way.length === 1 && (
          <span
            data-figure={figure}
            data-bytes={tree.bytes}
            data-tip={tipOf(tree.bytes, "total of all categories", source)}
          >
            {formatBytes(tree.bytes)}
          </span>
        )}
      </nav>
      <div
        class="cells"
        ref={host}
        role="tree"
        aria-label="Layers and tensors by bytes"
        data-testid="icicle"
        onKeyDown={onKeyDown}
        onFocusCapture={(event) => setStop((event.target as HTMLElement).dataset.node ?? "")}
      >
        {cells.map((cell) => (
          <CellButton
            key={cell.node.key}
            cell={cell}
            height={row}
            total={tree.bytes}
            tabStop={cell.node.key === tabStop}
            open={open}
          />
        ))}
      </div>
    </div>
  );
}

const [WIDTH, HEIGHT, ROW] = [1200, 400, 40];

export function IcicleDrawing({ tree, title }: { tree: TreeNode; title: string }) {
  const ink = inks();
  const cells = icicle(tree, WIDTH, HEIGHT / ROW);
  return (
    <SvgDrawing title={title} width={WIDTH} height={HEIGHT} ink={ink}>
      <Patterns fills={cells.flatMap(({ node }) => fillsOf(node))} ground={ink.background} />
      {cells.map((cell) => {
        const { node, level, x, width } = cell;
        const fills = fillsOf(node);
        let from = x;
        return (
          <g key={node.key}>
            <title>{`${node.layer?.path ?? node.name}: ${formatBytes(node.bytes)}`}</title>
            <rect
              x={x}
              y={level * ROW}
              width={width}
              height={ROW - 10}
              fill={ink.panel}
              stroke={ink.background}
            />
            {node.parts.map(({ category, bytes }, index) => {
              const [left, wide] = [from, (bytes / node.bytes) * width];
              from += wide;
              return (
                <rect
                  key={category}
                  x={left}
                  y={level * ROW + ROW - 10}
                  width={wide}
                  height={8}
                  fill={svgFill(fills[index] as Fill)}
                />
              );
            })}
            <text x={x + 4} y={level * ROW + 19} fill={ink.text}>
              {labels(cell).join(" ")}
            </text>
          </g>
        );
      })}
    </SvgDrawing>
  );
}

/**
 * Downloads of a view: figures as CSV and JSON, charts as PNG, drawings as SVG, with fills and axes
 * as on a canvas.
 */

import { signal } from "@preact/signals";
import { render, type VNode, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { byteTicks } from "../../charts/axis";
import { fillStyle, type BandFill, DOTS, DOT_RADIUS } from "../../charts/paint";
import { FONT } from "../../charts/rules";
import { fileName, toCsv, toJson, wellFormed, type Table } from "../../lib/bytes";
import { groupKey } from "../../model/categories";
import { at, type Overview } from "../../model/overview";
import { VIEWS } from "../../state/views";
import { inks, type Fill, type Ink } from "../../theme/palette";
import { useStore, useChoices } from "./context";
import { printViews } from "./print";
import { CopyButton } from "./states";

interface LegendEntry {
  label: string;
  fill: Omit<BandFill, "muted">;
}

interface Inks {
  background: string;
  text: string;
}

const [GAP, HEAD, LINE, SWATCH] = [12, 40, 24, 13];

export function placeLegend(
  widths: readonly number[],
  width: number,
): { x: number; line: number }[] {
  let [x, line] = [0, 0];
  return widths.map((label) => {
    const wanted = SWATCH + 6 + label + 18;
    if (x > 0 && x + wanted > width) [x, line] = [0, line + 1];
    const place = { x, line };
    x += wanted;
    return place;
  });
}

function paintPicture(
  all: readonly HTMLCanvasElement[],
  title: string,
  legend: readonly LegendEntry[],
  inks: Inks,
): Promise<Blob | null> {
  const canvases = all.filter(({ width, height }) => width > 2 && height > 2);
  const out = document.createElement("canvas");
  const brush = out.getContext("2d");
  if (!brush || canvases.length === 0) return Promise.resolve(null);
  const wide = Math.max(...canvases.map(({ width }) => width));
  const small = `13px ${FONT}`;
  brush.font = small;
  const places = placeLegend(
    legend.map(({ label }) => brush.measureText(label).width),
    wide,
  );
  const lines = (places.at(-1)?.line ?? -1) + 1;
  out.width = wide + 2 * GAP;
  out.height = canvases.reduce((sum, { height }) => sum + height + GAP, HEAD + GAP) + lines * LINE;
  brush.fillStyle = inks.background;
  brush.fillRect(0, 0, out.width, out.height);
  brush.fillStyle = inks.text;
  brush.font = `500 18px ${FONT}`;
  brush.fillText(title, GAP, 28);
  let top = HEAD;
  for (const canvas of canvases) {
    brush.drawImage(canvas, GAP, top);
    top += canvas.height + GAP;
  }
  brush.font = small;
  legend.forEach(({ label, fill }, index) => {
    const { x, line } = places[index] ?? { x: 0, line: 0 };
    const [left, base] = [GAP + x, top + line * LINE];
    brush.fillStyle = fillStyle(brush, { ...fill }, inks.background, 1, 1);
    brush.fillRect(left, base, SWATCH, SWATCH);
    brush.fillStyle = inks.text;
    brush.fillText(label, left + SWATCH + 6, base + SWATCH - 2);
  });
  return new Promise((resolve) => out.toBlob(resolve, "image/png"));
}

interface Exported {
  table: () => Table;
  /** Legend of the view's canvases; without it there is no PNG. */
  legend?: () => LegendEntry[];
  changes?: () => Table;
  /** The view as one SVG; without it there is no SVG download. */
  drawing?: () => VNode;
}

/** What the shown view gives, and which kinds of files that are. */
const shown = signal<{ latest: { current: Exported }; kinds: string } | null>(null);

export function useExport(exported: Exported): void {
  const latest = useRef(exported);
  latest.current = exported;
  const kinds = Object.keys(exported).join(" ");
  useEffect(() => {
    const mine = { latest, kinds };
    shown.value = mine;
    return () => {
      if (shown.peek() === mine) shown.value = null;
    };
  }, [kinds]);
}

export function overviewFile(overview: Overview): Table {
  const measured = [
    "step",
    "epoch",
    "wall_time",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
  ] as const;
  const columns = [...measured, ...overview.groups.map(groupKey)];
  const values = [...measured.map((name) => overview[name]), ...overview.bytes];
  return {
    columns,
    rows: Array.from({ length: overview.rows }, (_, row) =>
      values.map((column) => at(column, row)),
    ),
  };
}

function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const text = (content: string, type: string): Blob =>
  new Blob([content], { type: `${type};charset=utf-8` });

function drawn(node: VNode): Blob | null {
  const host = document.createElement("div");
  render(node, host);
  const svg = host.querySelector("svg");
  const blob = svg && text(wellFormed(new XMLSerializer().serializeToString(svg)), "image/svg+xml");
  render(null, host);
  return blob;
}

type Kind = readonly [name: string, about: string, download: () => void];

/** Closes after a choice, on Escape, and when the focus or the pointer goes elsewhere. */
function Menu({ kinds, children }: { kinds: readonly Kind[]; children?: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  useEffect(() => {
    const elsewhere = ({ target }: PointerEvent) => {
      if (target instanceof Node && !menu.current?.contains(target)) close();
    };
    document.addEventListener("pointerdown", elsewhere);
    return () => document.removeEventListener("pointerdown", elsewhere);
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !menu.current?.open) return;
    event.stopPropagation();
    close();
    menu.current.querySelector("summary")?.focus();
  };
  const onFocusOut = ({ relatedTarget }: FocusEvent) => {
    if (relatedTarget instanceof Node && !menu.current?.contains(relatedTarget)) close();
  };
  return (
    <details
      ref={menu}
      class={kinds.length === 0 ? "downloads pending" : "downloads"}
      onKeyDown={onKeyDown}
      onFocusOut={onFocusOut}
    >
      <summary aria-label="Download and share" title="Download and share">
        ↓
      </summary>
      <div class="downloads-menu">
        {kinds.map(([name, about, download]) => (
          <button
            key={name}
            type="button"
            title={about}
            onClick={() => {
              close();
              download();
            }}
          >
            {name}
          </button>
        ))}
        {children}
      </div>
    </details>
  );
}

export function Downloads() {
  const store = useStore();
  const ink = inks();
  const run = store.primary.value?.run;
  const what = shown.value;
  // Its place is kept until there is something to download.
  if (!what || run === undefined) return <Menu kinds={[]} />;
  const { view, layer } = useChoices();
  const title = [
    "memory",
    run,
    view,
    ...(VIEWS[view].parent !== undefined && layer !== null ? [layer] : []),
  ].join(" ");
  const give = (blob: Blob | null, ending: string) => {
    if (blob) save(blob, fileName(title, ending));
  };
  const { latest } = what;
  const { legend, drawing, changes } = latest.current;
  const paint = () => {
    const canvases = [...document.querySelectorAll<HTMLCanvasElement>("main canvas")];
    void paintPicture(canvases, title, latest.current.legend?.() ?? [], ink).then((blob) =>
      give(blob, "png"),
    );
  };
  const ofTable = (of: "figures" | "changes", table: () => Table | undefined): Kind[] => {
    const written = (write: (table: Table) => string, type: string, ending: string) => () => {
      const found = table();
      if (found) give(text(write(found), type), of === "figures" ? ending : `${of}.${ending}`);
    };
    const named = (kind: string): string => (of === "figures" ? kind : `${kind}: ${of}`);
    return [
      [named("CSV"), `Download the ${of} as CSV`, written(toCsv, "text/csv", "csv")],
      [named("JSON"), `Download the ${of} as JSON`, written(toJson, "application/json", "json")],
    ];
  };
  const kinds = ofTable("figures", () => latest.current.table());
  if (legend) kinds.push(["PNG", "Download the charts as PNG", paint]);
  if (drawing) {
    kinds.push([
      "SVG",
      "Download the drawing as SVG",
      () => give(latest.current.drawing ? drawn(latest.current.drawing()) : null, "svg"),
    ]);
  }
  if (changes) kinds.push(...ofTable("changes", () => latest.current.changes?.()));
  kinds.push([
    "Print all views",
    "Print every view of the run, each on its own page",
    () => void printViews(store),
  ]);
  return (
    <Menu kinds={kinds}>
      {!store.recordedOnly && (
        <>
          <CopyButton
            name="Copy link"
            title="Copy the address of this view"
            text={() => window.parent.location.href}
          />
          <CopyButton
            name="Copy report command"
            title="Copy the command that writes the run into one HTML file"
            text={() => reportCommand(run)}
          />
        </>
      )}
    </Menu>
  );
}

/** For a shell, in the log directory. */
const reportCommand = (run: string): string =>
  `tb-memplugin report . --run '${run.replaceAll("'", "'\\''")}' -o memory.html`;

const SIZE = 6;

const idOf = ({ colour, pattern }: Fill): string =>
  `fill-${pattern}-${colour.replace(/[^\w]/g, "")}`;

/** Value of the attribute `fill`; the drawing must contain the `Patterns` of all its fills. */
export const svgFill = (fill: Fill): string =>
  fill.pattern === "plain" ? fill.colour : `url(#${idOf(fill)})`;

/**
 * Lines or dots in the ground's colour; hatched leans the other way and shows the ground between
 * its lines.
 */
function Pattern({ fill, ground }: { fill: Fill; ground: string }) {
  const box = { id: idOf(fill), width: SIZE, height: SIZE, patternUnits: "userSpaceOnUse" };
  if (fill.pattern === "dotted") {
    return (
      <pattern {...box}>
        <rect width={SIZE} height={SIZE} fill={fill.colour} />
        {DOTS.map((at) => (
          <circle key={at} cx={at} cy={at} r={DOT_RADIUS} fill={ground} opacity="0.75" />
        ))}
      </pattern>
    );
  }
  const hatched = fill.pattern === "hatched";
  const [left, right] = hatched ? [-1, SIZE + 1] : [SIZE + 1, -1];
  const lines = [-SIZE, 0, SIZE]
    .map((shift) => `M${shift - 1} ${left}L${shift + SIZE + 1} ${right}`)
    .join("");
  return (
    <pattern {...box}>
      <rect width={SIZE} height={SIZE} fill={hatched ? ground : fill.colour} />
      <path
        d={lines}
        stroke={hatched ? fill.colour : ground}
        stroke-width="1.4"
        opacity={hatched ? 0.85 : 0.6}
      />
    </pattern>
  );
}

export function Patterns({ fills, ground }: { fills: readonly Fill[]; ground: string }) {
  const patterned = new Map(
    fills.filter(({ pattern }) => pattern !== "plain").map((fill) => [idOf(fill), fill]),
  );
  return (
    <defs>
      {[...patterned].map(([id, fill]) => (
        <Pattern key={id} fill={fill} ground={ground} />
      ))}
    </defs>
  );
}

const TITLE = 36;

interface SvgDrawingProps {
  title: string;
  width: number;
  height: number;
  ink: Ink;
  children: ComponentChildren;
}

export function SvgDrawing({ title, width, height, ink, children }: SvgDrawingProps) {
  const box = { width, height: height + TITLE, viewBox: `0 0 ${width} ${height + TITLE}` };
  return (
    <svg
      xmlns="http://www.w3.org/2000/svg"
      {...box}
      font-family={FONT}
      font-size="12"
      role="img"
      aria-label={title}
    >
      <rect width={width} height={height + TITLE} fill={ink.background} />
      <text x="8" y="24" font-size="16" font-weight="500" fill={ink.text}>
        {title}
      </text>
      <g transform={`translate(0 ${TITLE})`}>{children}</g>
    </svg>
  );
}

interface ByteAxisProps {
  top: number;
  height: number;
  left: number;
  right: number;
  y: (bytes: number) => number;
  ink: Ink;
}

export function ByteAxis({ top, height, left, right, y, ink }: ByteAxisProps) {
  const { values, labels } = byteTicks(top, Math.max(height / 64, 2));
  return (
    <>
      {values.map((value, index) => (
        <g key={value}>
          <line x1={left} x2={right} y1={y(value)} y2={y(value)} stroke={ink.grid} />
          <text x={left - 8} y={y(value) + 4} text-anchor="end" fill={ink.faint}>
            {labels[index]}
          </text>
        </g>
      ))}
    </>
  );
}

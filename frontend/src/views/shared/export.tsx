/** Downloads of a view: figures as CSV and JSON, charts as PNG, drawings as SVG. */

import { signal } from "@preact/signals";
import { render, type VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { paintPicture, type LegendEntry } from "../../charts/picture";
import { fileName, toCsv, toJson, wellFormed, type Table } from "../../lib/bytes";
import { groupKey } from "../../model/categories";
import { at, type Overview } from "../../model/overview";
import { VIEWS } from "../../state/views";
import { inkOf, useStore } from "./context";

interface Exported {
  /** The figures; built only for a download. */
  table: () => Table;
  /** Legend of the view's canvases; without it there is no PNG. */
  legend?: () => LegendEntry[];
  /** The view as one SVG; without it there is no SVG download. */
  drawing?: () => VNode;
}

interface Shown {
  latest: { current: Exported };
  png: boolean;
  svg: boolean;
}

const shown = signal<Shown | null>(null);

/** Sets the downloads of this view. */
export function useExport(exported: Exported): void {
  const latest = useRef(exported);
  latest.current = exported;
  const [png, svg] = [exported.legend !== undefined, exported.drawing !== undefined];
  useEffect(() => {
    const mine: Shown = { latest, png, svg };
    shown.value = mine;
    return () => {
      if (shown.peek() === mine) shown.value = null;
    };
  }, [png, svg]);
}

/** The rows of an overview: measured figures, then every group of the stack. */
export function overviewFile(overview: Overview): Table {
  const measured = ["step", "epoch", "wall_time", "in_use_bytes", "peak_bytes", "capacity_bytes"] as const;
  const columns = [...measured, ...overview.groups.map(groupKey)];
  const values = [...measured.map((name) => overview[name]), ...overview.bytes];
  return { columns, rows: Array.from({ length: overview.rows }, (_, row) => values.map((column) => at(column, row))) };
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

const text = (content: string, type: string): Blob => new Blob([content], { type: `${type};charset=utf-8` });

/** The drawing as a document of its own. */
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
function Menu({ kinds }: { kinds: readonly Kind[] }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = (): void => {
    if (menu.current) menu.current.open = false;
  };
  useEffect(() => {
    const elsewhere = ({ target }: PointerEvent): void => {
      if (target instanceof Node && !menu.current?.contains(target)) close();
    };
    document.addEventListener("pointerdown", elsewhere);
    return () => document.removeEventListener("pointerdown", elsewhere);
  }, []);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !menu.current?.open) return;
    event.stopPropagation();
    close();
    menu.current.querySelector("summary")?.focus();
  };
  const onFocusOut = ({ relatedTarget }: FocusEvent): void => {
    if (relatedTarget instanceof Node && !menu.current?.contains(relatedTarget)) close();
  };
  return (
    <details ref={menu} class="downloads" onKeyDown={onKeyDown} onFocusOut={onFocusOut}>
      <summary>Download</summary>
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
      </div>
    </details>
  );
}

export function Downloads() {
  const store = useStore();
  const ink = inkOf(store);
  const run = store.primary.value?.run;
  const what = shown.value;
  if (!what || run === undefined) return null;
  const { view, layer } = store.choices.value;
  const title = ["memory", run, view, ...(VIEWS[view].parent !== undefined && layer !== null ? [layer] : [])].join(" ");
  const give = (blob: Blob | null, ending: string): void => {
    if (blob) save(blob, fileName(title, ending));
  };
  const { latest } = what;
  const paint = (): void => {
    const canvases = [...document.querySelectorAll<HTMLCanvasElement>("main canvas")];
    void paintPicture(canvases, title, latest.current.legend?.() ?? [], ink).then((blob) => give(blob, "png"));
  };
  const kinds: Kind[] = [
    ["CSV", "Download the figures as CSV", () => give(text(toCsv(latest.current.table()), "text/csv"), "csv")],
    ["JSON", "Download the figures as JSON", () => give(text(toJson(latest.current.table()), "application/json"), "json")],
  ];
  if (what.png) kinds.push(["PNG", "Download the charts as PNG", paint]);
  if (what.svg) {
    kinds.push(["SVG", "Download the drawing as SVG", () => give(latest.current.drawing ? drawn(latest.current.drawing()) : null, "svg")]);
  }
  return <Menu kinds={kinds} />;
}

/** Downloads of what is shown: its figures as CSV and JSON, its picture as PNG or SVG. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { fileName, toCsv, toJson, type Table } from "../lib/table";
import { groupKey } from "../model/categories";
import { at, type Overview } from "../model/overview";
import { inkOf, useStore } from "./context";

interface Shown {
  table: () => Table;
  /** Whether the view paints on canvases, or draws one SVG. */
  picture: "canvas" | "svg" | null;
}

const shown = signal<Shown | null>(null);

/** Says what a download of this view holds; the table is only made when it is asked for. */
export function useExport(picture: Shown["picture"], table: () => Table): void {
  const latest = useRef(table);
  latest.current = table;
  useEffect(() => {
    const mine: Shown = { table: () => latest.current(), picture };
    shown.value = mine;
    return () => {
      if (shown.peek() === mine) shown.value = null;
    };
  }, [picture]);
}

/** The rows of an overview: what was measured, then every group of the stack. */
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

/** The charts of the view below each other, on its ground. */
function paintAll(ground: string, ink: string, title: string): Promise<Blob | null> {
  const canvases = [...document.querySelectorAll<HTMLCanvasElement>("main canvas")].filter(({ width, height }) => width > 2 && height > 2);
  const [gap, head] = [12, 40];
  const out = document.createElement("canvas");
  out.width = Math.max(...canvases.map(({ width }) => width)) + 2 * gap;
  out.height = canvases.reduce((sum, { height }) => sum + height + gap, head + gap);
  const brush = out.getContext("2d");
  if (!brush) return Promise.resolve(null);
  brush.fillStyle = ground;
  brush.fillRect(0, 0, out.width, out.height);
  brush.fillStyle = ink;
  brush.font = '500 18px "Roboto", "Helvetica Neue", Arial, sans-serif';
  brush.fillText(title, gap, 28);
  let top = head;
  for (const canvas of canvases) {
    brush.drawImage(canvas, gap, top);
    top += canvas.height + gap;
  }
  return new Promise((resolve) => out.toBlob(resolve, "image/png"));
}

function drawing(): Blob | null {
  const svg = document.querySelector("main svg[data-picture]");
  return svg && text(new XMLSerializer().serializeToString(svg), "image/svg+xml");
}

export function Downloads() {
  const store = useStore();
  const ink = inkOf(store);
  const run = store.primary.value?.run;
  const what = shown.value;
  if (!what || run === undefined) return null;
  const { view, layer } = store.choices.value;
  const title = ["memory", run, view, ...(view === "layer" && layer !== null ? [layer] : [])].join(" ");
  const give = (blob: Blob | null, ending: string): void => {
    if (blob) save(blob, fileName(title, ending));
  };
  return (
    <span class="downloads" role="group" aria-label="Download what is shown">
      <span aria-hidden="true">⤓</span>
      <button type="button" title="Download the figures as CSV" onClick={() => give(text(toCsv(what.table()), "text/csv"), "csv")}>
        CSV
      </button>
      <button
        type="button"
        title="Download the figures as JSON"
        onClick={() => give(text(toJson(what.table()), "application/json"), "json")}
      >
        JSON
      </button>
      {what.picture === "canvas" && (
        <button
          type="button"
          title="Download the charts as PNG"
          onClick={() => void paintAll(ink.background, ink.text, title).then((blob) => give(blob, "png"))}
        >
          PNG
        </button>
      )}
      {what.picture === "svg" && (
        <button type="button" title="Download the bridge as SVG" onClick={() => give(drawing(), "svg")}>
          SVG
        </button>
      )}
    </span>
  );
}

/** Axes, zoom and cursor around our painters. The only module that knows uPlot. */

import uPlot from "uplot";

import {
  byteTicks,
  shareTicks,
  tickSteps,
  wallLabels,
  xLabel,
  type Range,
  type Ticks,
  type XKind,
  type YKind,
} from "./axis";
import type { Painter, Scale } from "./paint";
import { FONT } from "./rules";

export type Undo = () => void;

export class Clicks {
  private undo: Undo | null = null;

  /** The second click of a double-click does nothing, neither do further ones. */
  click(event: MouseEvent, act: () => Undo | null): void {
    if (event.detail <= 1) this.undo = act();
  }

  doubleClick(): void {
    const { undo } = this;
    this.undo = null;
    undo?.();
  }
}

export interface PlotSpec {
  x: Float64Array;
  xKind: XKind;
  range: Range;
  /** By default bytes. */
  yKind?: YKind;
  yMax: number;
  /** Pixels above the plot, for its marks and lanes. */
  headroom?: number;
  inks: { faint: string; grid: string };
  /** The row at a place of the x-axis, where that is not the row nearest to it. */
  rowAt?: (x: number) => number;
  painters: readonly Painter[];
  lanes?: readonly Painter[];
}

/**
 * Where the cursor stands on a row: at its place, or at the start of the range if the row reaches
 * into it.
 */
export function placeOf(
  { x, range, rowAt }: Pick<PlotSpec, "x" | "range" | "rowAt">,
  row: number,
): number | null {
  const place = x[row] ?? null;
  return place !== null && place < range[0] && rowAt?.(range[0]) === row ? range[0] : place;
}

export interface PlotEvents {
  cursor(row: number | null, value: number | null): void;
  /** A click on a row acts; a double-click undoes that. */
  pin(row: number): Undo | null;
  zoom(from: number, to: number): void;
  reset(): void;
  painted(box: { left: number; top: number; width: number; height: number }): void;
}

/** Path data of an outline above the plot, in CSS pixels of its box. */
export type Outline = (scale: Scale) => string;

/** Room for the uppermost label of the axis. */
const HEADROOM = 8;

export class Plot {
  private readonly chart: uPlot;
  private readonly paths: readonly SVGPathElement[];
  private outline: Outline | null = null;
  private readonly lines: Record<"cursor" | "pin", HTMLElement>;
  private places: Record<"cursor" | "pin", number | null> = { cursor: null, pin: null };
  private dragged = false;
  private readonly clicks = new Clicks();

  constructor(
    private readonly host: HTMLElement,
    private spec: PlotSpec,
    private readonly events: PlotEvents,
  ) {
    const { width, height } = host.getBoundingClientRect();
    this.lines = { cursor: line("cursor-line"), pin: line("pin-line") };
    this.chart = new uPlot(
      this.options(Math.max(width, 50), Math.max(height, 50)),
      this.data(),
      host,
    );
    const drawing = svg("svg");
    // A wide line below a narrow one: legible on every fill.
    this.paths = [svg("path"), svg("path")];
    drawing.append(...this.paths);
    this.chart.over.append(drawing, this.lines.pin, this.lines.cursor);
    this.chart.over.addEventListener("click", this.clicked);
    this.apply();
  }

  /** Whether a spec needs another plot: uPlot fixes these when it is made. */
  fits(spec: PlotSpec): boolean {
    const { xKind, yKind, headroom, inks } = this.spec;
    return (
      spec.xKind === xKind &&
      spec.yKind === yKind &&
      spec.headroom === headroom &&
      spec.inks === inks
    );
  }

  update(spec: PlotSpec): void {
    this.spec = spec;
    this.apply();
  }

  resize(): void {
    const { width, height } = this.host.getBoundingClientRect();
    if (width > 50 && height > 50) this.chart.setSize({ width, height });
  }

  show(which: "cursor" | "pin", x: number | null): void {
    this.places[which] = x;
    const [from, to] = this.spec.range;
    const element = this.lines[which];
    element.hidden = x === null || x < from || x > to;
    if (x !== null)
      element.style.transform = `translateX(${this.chart.valToPos(x, "x").toFixed(2)}px)`;
  }

  /** Shows an outline, which costs no paint of the plot; none for null. */
  showOutline(outline: Outline | null): void {
    this.outline = outline;
    const { chart } = this;
    const [width, height] = [chart.bbox.width / uPlot.pxRatio, chart.bbox.height / uPlot.pxRatio];
    const x = (value: number): number => chart.valToPos(value, "x");
    const y = (value: number): number => chart.valToPos(value, "y");
    const path = outline?.({ x, y, left: 0, top: 0, width, height, ratio: 1 }) ?? "";
    for (const element of this.paths) element.setAttribute("d", path);
  }

  destroy(): void {
    this.chart.destroy();
  }

  private data(): uPlot.AlignedData {
    // uPlot looks at every row: it gets none that it need not find.
    return [this.spec.rowAt ? Float64Array.from(this.spec.range) : this.spec.x];
  }

  private apply(): void {
    const { range, yMax } = this.spec;
    this.chart.batch(() => {
      this.chart.setData(this.data(), false);
      this.chart.setScale("x", { min: range[0], max: range[1] });
      this.chart.setScale("y", { min: 0, max: yMax });
    });
    this.chart.redraw(false, true);
  }

  private readonly clicked = (event: MouseEvent) => {
    const row = this.row();
    this.clicks.click(event, () => (this.dragged || row === null ? null : this.events.pin(row)));
    this.dragged = false;
  };

  private paint(painters: readonly Painter[], clipped: boolean): void {
    const { ctx, bbox } = this.chart;
    const scale: Scale = {
      x: (value) => this.chart.valToPos(value, "x", true),
      y: (value) => this.chart.valToPos(value, "y", true),
      ...bbox,
      ratio: uPlot.pxRatio,
    };
    ctx.save();
    if (clipped) {
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
    }
    for (const painter of painters) painter(ctx, scale);
    ctx.restore();
  }

  private painted(): void {
    this.paint(this.spec.painters, true);
    this.paint(this.spec.lanes ?? [], false);
    const { bbox } = this.chart;
    const ratio = uPlot.pxRatio;
    this.show("cursor", this.places.cursor);
    this.show("pin", this.places.pin);
    if (this.outline) this.showOutline(this.outline);
    this.events.painted({
      left: bbox.left / ratio,
      top: bbox.top / ratio,
      width: bbox.width / ratio,
      height: bbox.height / ratio,
    });
  }

  private moved(chart: uPlot): void {
    const { top = -1 } = chart.cursor;
    const row = this.row();
    if (row === null) this.events.cursor(null, null);
    else this.events.cursor(row, chart.posToVal(top, "y"));
  }

  private row(): number | null {
    const { left = -1, idx } = this.chart.cursor;
    if (left < 0 || idx === null || idx === undefined) return null;
    return this.spec.rowAt ? this.spec.rowAt(this.chart.posToVal(left, "x")) : idx;
  }

  private selected(): void {
    const { left, width } = this.chart.select;
    if (width < 4) return;
    this.dragged = true;
    this.chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.events.zoom(this.chart.posToVal(left, "x"), this.chart.posToVal(left + width, "x"));
  }

  private options(width: number, height: number): uPlot.Options {
    const { xKind, range, yMax } = this.spec;
    return {
      width,
      height,
      padding: [this.spec.headroom ?? HEADROOM, 24, 0, 0],
      legend: { show: false },
      series: [{}],
      scales: {
        x: { time: xKind === "wall", auto: false, min: range[0], max: range[1] },
        y: { auto: false, min: 0, max: yMax },
      },
      axes: [this.xAxis(), this.yAxis()],
      cursor: {
        x: false,
        y: false,
        drag: { x: true, y: false, setScale: false, dist: 4 },
        bind: {
          dblclick: () => () => {
            this.clicks.doubleClick();
            this.events.reset();
            return null;
          },
        },
      },
      hooks: {
        draw: [() => this.painted()],
        setCursor: [(chart) => this.moved(chart)],
        setSelect: [() => this.selected()],
      },
    };
  }

  private xAxis(): uPlot.Axis {
    const { inks, xKind } = this.spec;
    const axis: uPlot.Axis = {
      ...look(inks),
      size: xKind === "wall" ? 44 : 30,
      space: 80,
      grid: { show: false },
    };
    if (xKind === "wall")
      return {
        ...axis,
        values: (_, splits, _axis, _space, distance) => wallLabels(splits, distance),
      };
    return {
      ...axis,
      incrs: tickSteps(xKind),
      values: (_, splits) => splits.map((value) => xLabel(xKind, value)),
    };
  }

  private yAxis(): uPlot.Axis {
    const ticks = (chart: uPlot): Ticks =>
      this.spec.yKind === "share"
        ? shareTicks()
        : byteTicks(this.spec.yMax, Math.max(chart.bbox.height / uPlot.pxRatio / 64, 2));
    return {
      ...look(this.spec.inks),
      size: 76,
      splits: (chart) => ticks(chart).values,
      values: (chart) => ticks(chart).labels,
    };
  }
}

function look(inks: PlotSpec["inks"]): uPlot.Axis {
  return {
    stroke: inks.faint,
    font: `12px ${FONT}`,
    grid: { stroke: inks.grid, width: 1 },
    ticks: { stroke: inks.grid, width: 1, size: 5 },
  };
}

function svg<Name extends "svg" | "path">(name: Name): SVGElementTagNameMap[Name] {
  return document.createElementNS("http://www.w3.org/2000/svg", name);
}

function line(name: string): HTMLElement {
  const element = document.createElement("div");
  element.className = name;
  element.hidden = true;
  return element;
}

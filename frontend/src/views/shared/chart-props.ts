/** What a chart is given. */

import type { ComponentChildren } from "preact";

import type { Range } from "../../charts/axis";
import type { Mark } from "../../charts/layout";
import type { Outline, PlotSpec, Undo } from "../../charts/plot";

export interface StepHandle {
  step: number;
  /** What the keyboard goes to, ascending; the pointer goes to every row. */
  stops: readonly number[];
  ends: readonly [number, number];
  choose: (step: number) => void;
}

export interface ChartMark extends Mark {
  step: number;
  sentence: string;
  oom?: number;
}

export interface ChartProps {
  label: string;
  spec: PlotSpec;
  marks: readonly ChartMark[];
  cursor: number | null;
  pin: number | null;
  /**
   * The row that is described, and where the keyboard starts, without a cursor and a selected step;
   * by default the first.
   */
  rest?: number;
  /** The selected step, which a handle on the x-axis moves. */
  handle?: StepHandle;
  outline?: Outline | null;
  describe: (row: number) => string;
  /** `value` is where the pointer stands on the y-axis, null for the keyboard. */
  onCursor: (row: number | null, value: number | null) => void;
  /** Gives a function that restores what was selected before, null if nothing changed. */
  onPin: (row: number) => Undo | null;
  onMark?: (mark: ChartMark) => void;
  onZoom: (from: number, to: number) => void;
  onDrag?: (from: number, to: number) => void;
  onReset: () => void;
  /** The ends of the x-axis, where the keyboard's panning stops; undefined if they are unknown. */
  whole?: Range | undefined;
  onHover: (hovered: boolean) => void;
  onBox?: (box: Box) => void;
  height?: "small" | "medium" | "tall" | "compare" | "large" | "timeline";
  children?: ComponentChildren;
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

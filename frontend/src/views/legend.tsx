/** How to read the lines and fills of a chart over steps. */

import type { ComponentChildren } from "preact";

export function LegendItem({ kind, colour, children }: { kind: string; colour?: string; children: ComponentChildren }) {
  return (
    <span class="legend-item">
      <i class={`key ${kind}`} style={colour ? { "--key": colour } : {}} aria-hidden="true" />
      {children}
    </span>
  );
}

interface StackLegendProps {
  traced: boolean;
  validation: boolean;
  capacity: boolean;
  /** Whether what is left in use at the end of each step is drawn. */
  ended?: boolean;
}

export function StackLegend({ traced, validation, capacity, ended }: StackLegendProps) {
  return (
    <p class="legend">
      <LegendItem kind="line">measured peak, every step</LegendItem>
      {ended && <LegendItem kind="ended">in use at each step's end</LegendItem>}
      {traced && <LegendItem kind="full">traced step: composition measured</LegendItem>}
      <LegendItem kind="light">between: composition inferred</LegendItem>
      {capacity && <LegendItem kind="capacity">capacity</LegendItem>}
      {validation && <LegendItem kind="diamond">validation peak</LegendItem>}
      <span class="hint">Drag to zoom, double-click for all, click to pin a step, Esc to clear</span>
    </p>
  );
}

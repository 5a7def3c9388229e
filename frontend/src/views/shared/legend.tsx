/** Legends of the charts over steps. */

import type { ComponentChildren } from "preact";

import type { Overview } from "../../model/overview";

export function LegendItem({ kind, colour, children }: { kind: string; colour?: string; children: ComponentChildren }) {
  return (
    <span class="legend-item">
      <i class={`key ${kind}`} style={colour ? { "--key": colour } : {}} aria-hidden="true" />
      {children}
    </span>
  );
}

interface StackLegendProps {
  overview: Overview;
  /** Whether the peaks of validation passes are drawn. */
  validation?: boolean;
  /** Whether the bytes in use at step end are drawn. */
  ended?: boolean;
}

export function StackLegend({ overview, validation = true, ended = false }: StackLegendProps) {
  const { snapshots, validations } = overview;
  return (
    <p class="legend">
      <LegendItem kind="line">measured peak</LegendItem>
      {ended && <LegendItem kind="ended">in use at step end</LegendItem>}
      {snapshots.length > 0 && <LegendItem kind="full">measured</LegendItem>}
      <LegendItem kind="light">inferred</LegendItem>
      {validation && validations.length > 0 && <LegendItem kind="diamond">validation peak</LegendItem>}
    </p>
  );
}

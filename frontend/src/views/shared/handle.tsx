/** A handle on the x-axis of a chart that moves the selected step. */

import { useState } from "preact/hooks";

import { placeOf } from "../../charts/plot";
import { nearestIndex, clamp } from "../../lib/search";
import { tracedNeighbours } from "../../model/step-selection";
import type { Box, ChartProps, StepHandle } from "./chart-props";
import { actOnKey } from "./controls";

const within = (share: number): number => clamp(share, 0, 1);

export function Handle({
  box,
  chart,
  of: { step, stops, ends, choose },
}: {
  box: Box;
  chart: ChartProps;
  of: StepHandle;
}) {
  const { spec, cursor } = chart;
  const [dragged, setDragged] = useState(false);
  const [from, to] = spec.range;
  const row = (dragged ? cursor : null) ?? chart.rest ?? 0;
  const share = ((placeOf(spec, row) ?? from) - from) / (to - from);
  const { before, after } = tracedNeighbours(stops, step);
  const go = (goal: number | null | undefined) => () => {
    if (goal != null) choose(goal);
  };
  const drag = (on: boolean) => {
    setDragged(on);
    // New steps wait, as while the pointer is in the plot.
    chart.onHover(on);
    if (!on) chart.onCursor(null, null);
  };
  const move = ({ clientX, currentTarget }: PointerEvent) => {
    const host = (currentTarget as HTMLElement).parentElement as HTMLElement;
    const x =
      from +
      within((clientX - host.getBoundingClientRect().left - box.left) / box.width) * (to - from);
    chart.onCursor(spec.rowAt ? spec.rowAt(x) : nearestIndex(spec.x, x), null);
  };
  const keys = {
    ...{ ArrowLeft: go(before), ArrowDown: go(before), ArrowRight: go(after), ArrowUp: go(after) },
    ...{ Home: go(stops[0]), End: go(stops.at(-1)) },
  };
  return (
    <div
      class={`handle${share === within(share) ? "" : " beyond"}`}
      style={{
        transform: `translate(${box.left + within(share) * box.width}px, ${box.top + box.height}px)`,
      }}
      role="slider"
      tabIndex={0}
      aria-label="Selected step on the axis"
      aria-valuemin={ends[0]}
      aria-valuemax={ends[1]}
      aria-valuenow={step}
      aria-valuetext={chart.describe(row)}
      title="Drag to another step; arrow keys go from one traced step to the next"
      onKeyDown={(event) => actOnKey(event, keys)}
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        drag(true);
      }}
      onPointerMove={(event) => dragged && move(event)}
      onPointerUp={() => {
        if (dragged && cursor !== null) chart.onPin(cursor);
        drag(false);
      }}
      onPointerCancel={() => drag(false)}
    />
  );
}

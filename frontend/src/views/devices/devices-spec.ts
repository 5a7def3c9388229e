/** Highest and lowest peak of the devices over the steps, and their sum in use. Pure. */

import { byteRange, cellEdges } from "../../charts/axis";
import { betweenPainter, stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import type { Devices } from "../../model/devices";
import { ofOneKind } from "../../model/run";
import type { Choices } from "../../state/address";
import { INKS, runColour, type Scheme } from "../../theme/palette";
import { AXIS_INKS, highest, rangeOf, rangeOfSome } from "../shared/frame";

type Series = "highest" | "lowest" | "sum";

/** The lines that are drawn, with their labels. */
export function seriesOf({ devices, steps }: Devices): { name: Series; label: string }[] {
  if (ofOneKind(devices).length < 2) return [{ name: "highest", label: "measured peak" }];
  return [
    { name: "highest", label: "highest peak" },
    { name: "lowest", label: "lowest peak" },
    ...(steps.sum_in_use_bytes === null ? [] : [{ name: "sum" as const, label: "sum in use at step end" }]),
  ];
}

/** Of the palette for lines without a category. */
export const seriesColour = (name: Series, scheme: Scheme): string =>
  name === "highest" ? INKS[scheme].line : runColour(name === "lowest" ? 1 : 4, scheme);

/** The answer has steps only: times of different workers are not one axis. */
function frameOf({ steps }: Devices, { zoom }: Choices, scheme: Scheme) {
  const edges = cellEdges(steps.step);
  const range = rangeOfSome(steps.step, steps.step, { axis: "step", zoom }, null) ?? rangeOf(edges);
  const common = { x: steps.step, xKind: "step" as const, range, yKind: "bytes" as const, headroom: 8, inks: AXIS_INKS[scheme], lanes: [] };
  return { edges, range, common };
}

/** The capacity that all compared devices have, null if they differ or it is unknown. */
export function commonCapacity({ devices }: Devices): number | null {
  const capacities = new Set(ofOneKind(devices).map(({ capacity_bytes }) => capacity_bytes));
  const [only] = capacities;
  return capacities.size === 1 ? (only ?? null) : null;
}

export function peaksSpec(devices: Devices, choices: Choices, scheme: Scheme): PlotSpec {
  const { edges, range, common } = frameOf(devices, choices, scheme);
  const { max_peak_bytes: most, min_peak_bytes: least } = devices.steps;
  const ink = INKS[scheme];
  const capacity = commonCapacity(devices);
  const { max, capacityInside } = byteRange(highest(most, common.x, range), capacity);
  const line = (name: Series, width: number) => ({ colour: seriesColour(name, scheme), width, dash: [] });
  const several: Painter[] =
    ofOneKind(devices.devices).length > 1
      ? [
          betweenPainter(edges, least, most, { colour: ink.faint, pattern: "plain", muted: false }, ink.background, 0.2),
          stepPainter(edges, least, line("lowest", 1.5)),
        ]
      : [];
  return {
    ...common,
    yMax: max,
    painters: [
      ...several,
      stepPainter(edges, most, line("highest", 1.75)),
      ...(capacity === null ? [] : [capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, ink)]),
    ],
  };
}

/** Null where the sum is unknown or that of one device. */
export function sumSpec(devices: Devices, choices: Choices, scheme: Scheme): PlotSpec | null {
  const sum = devices.steps.sum_in_use_bytes;
  if (sum === null || ofOneKind(devices.devices).length < 2) return null;
  const { edges, range, common } = frameOf(devices, choices, scheme);
  const painters = [stepPainter(edges, sum, { colour: seriesColour("sum", scheme), width: 1.75, dash: [] })];
  return { ...common, yMax: byteRange(highest(sum, common.x, range), null).max, painters };
}

/** All devices and workers of a run side by side. */

import { useMemo } from "preact/hooks";

import { byteRange, cellEdges } from "../../charts/axis";
import { betweenPainter, stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter } from "../../charts/rules";
import { unitOf, unbroken, formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import {
  alignedStep,
  breakdownNote,
  devicesFile,
  devicesSummary,
  groupsOf,
  conspicuous,
  stepSentence,
  type Devices,
  sortedDevices,
  type DeviceSort,
} from "../../model/devices";
import { ofOneKind } from "../../model/run";
import type { Choices } from "../../state/address";
import { fillOf, inks, dark, runColour, type Fill } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { useStore, useCategoryRow, useChoices } from "../shared/context";
import { LegendItem, Search, Choose } from "../shared/controls";
import { useExport, Patterns, SvgDrawing, svgFill } from "../shared/export";
import { Swatch, UnitButton, InUnit } from "../shared/figures";
import { useStepsChart, highest, rangeOf, rangeOfSome } from "../shared/frame";
import { Nothing } from "../shared/states";
import { DeviceLayers } from "./device-layers";
import { DeviceTable, barScale, deviceBar, useLines } from "./device-table";
import type { Group } from "../../schema";

function ConspicuousList({ devices }: { devices: Devices }) {
  const entries = conspicuous(devices);
  if (entries.length === 0) return null;
  return (
    <ul class="small conspicuous" data-testid="conspicuous" aria-label="Workers to look at first">
      {entries.map(({ device, sentence }) => (
        <li key={sentence}>
          {device === null ? (
            sentence
          ) : (
            <Choose class="link" title={`Select ${device}`} data-device={device} these={{ device }}>
              {sentence}
            </Choose>
          )}
        </li>
      ))}
    </ul>
  );
}

type Series = "highest" | "lowest" | "sum";

export function seriesOf({ devices, steps }: Devices): { name: Series; label: string }[] {
  if (ofOneKind(devices).length < 2) return [{ name: "highest", label: "measured peak" }];
  return [
    { name: "highest", label: "highest peak" },
    { name: "lowest", label: "lowest peak" },
    ...(steps.sum_in_use_bytes === null
      ? []
      : [{ name: "sum" as const, label: "sum in use at step end" }]),
  ];
}

/** Of the palette for lines without a category. */
const seriesColour = (name: Series): string =>
  name === "highest" ? inks().line : runColour(name === "lowest" ? 1 : 4);

/** The answer has steps only: times of different workers are not one axis. */
function frameOf({ steps }: Devices, { zoom }: Choices) {
  const edges = cellEdges(steps.step);
  const range = rangeOfSome(steps.step, steps.step, { axis: "step", zoom }, null) ?? rangeOf(edges);
  const common = { x: steps.step, xKind: "step" as const, range, inks: inks() };
  return { edges, range, common };
}

/** The capacity that all compared devices have, null if they differ or it is unknown. */
export function commonCapacity({ devices }: Devices): number | null {
  const capacities = new Set(ofOneKind(devices).map(({ capacity_bytes }) => capacity_bytes));
  const [only] = capacities;
  return capacities.size === 1 ? (only ?? null) : null;
}

export function peaksSpec(devices: Devices, choices: Choices): PlotSpec {
  const { edges, range, common } = frameOf(devices, choices);
  const { max_peak_bytes: most, min_peak_bytes: least } = devices.steps;
  const ink = inks();
  const capacity = commonCapacity(devices);
  const { max, capacityInside } = byteRange(highest(most, common.x, range), capacity);
  const line = (name: Series, width: number) => ({ colour: seriesColour(name), width });
  const several: Painter[] =
    ofOneKind(devices.devices).length > 1
      ? [
          betweenPainter(
            edges,
            least,
            most,
            { colour: ink.faint, pattern: "plain" },
            ink.background,
            0.2,
          ),
          stepPainter(edges, least, line("lowest", 1.5)),
        ]
      : [];
  return {
    ...common,
    yMax: max,
    painters: [
      ...several,
      stepPainter(edges, most, line("highest", 1.75)),
      ...capacityPainter(capacity, capacityInside, ink),
    ],
  };
}

/** Null where the sum is unknown or that of one device. */
export function sumSpec(devices: Devices, choices: Choices): PlotSpec | null {
  const sum = devices.steps.sum_in_use_bytes;
  if (sum === null || ofOneKind(devices.devices).length < 2) return null;
  const { edges, range, common } = frameOf(devices, choices);
  const painters = [stepPainter(edges, sum, { colour: seriesColour("sum"), width: 1.75 })];
  return { ...common, yMax: byteRange(highest(sum, common.x, range), null).max, painters };
}

function DevicesCharts({ devices }: { devices: Devices }) {
  const choices = useChoices();
  const specs = useMemo(
    () => ({ peaks: peaksSpec(devices, choices), sum: sumSpec(devices, choices) }),
    [devices, choices.zoom, dark.value],
  );
  const chart = useStepsChart(devices.steps.step, specs.peaks.x);
  const describe = (row: number): string => stepSentence(devices, row);
  const several = ofOneKind(devices.devices).length > 1;
  const row = chart.cursor ?? chart.pin ?? chart.rest ?? 0;
  return (
    <section aria-label="Peaks over steps">
      <Chart
        {...chart}
        height="small"
        label={
          several
            ? "Highest and lowest peak of the devices over steps."
            : "Peak of the device over steps."
        }
        spec={specs.peaks}
        describe={describe}
      />
      {specs.sum && (
        <Chart
          {...chart}
          height="small"
          label="Sum in use of all devices over steps."
          spec={specs.sum}
          describe={describe}
        />
      )}
      <p class="small one-line" data-testid="devices-at-step" data-step={devices.steps.step[row]}>
        {describe(row)}
      </p>
      <p class="legend">
        {seriesOf(devices).map(({ name, label }) => (
          <LegendItem key={name} kind="line colour" colour={seriesColour(name)} label={label} />
        ))}
      </p>
    </section>
  );
}

function Legend({
  groups,
  devices,
  scale,
}: {
  groups: readonly Group[];
  devices: Devices;
  scale: number;
}) {
  const ofCategory = useCategoryRow();
  return (
    <p class="legend bars-legend">
      {groups.map((group) => {
        const key = groupKey(group);
        const { chosen, onChoose } = ofCategory(key, group.category);
        return (
          <button
            key={key}
            type="button"
            class="legend-item"
            aria-pressed={chosen}
            onClick={onChoose}
          >
            <Swatch fill={fillOf(group)} />
            {groupLabel(group)}
          </button>
        );
      })}
      {devices.devices.some(({ breakdown }) => breakdown === null) && (
        <LegendItem kind="hatched" label="breakdown unknown" />
      )}
      <LegendItem kind="upright" label="peak" />
      {devices.devices.some((row) => deviceBar(row, scale).capacity !== null) && (
        <LegendItem kind="upright limit" label="capacity" />
      )}
    </p>
  );
}

export function DevicesView({ devices }: { devices: Devices }) {
  const store = useStore();
  const { deviceSort: sort, columns, category } = useChoices();
  const shown = useLines(devices);
  const groups = useMemo(() => groupsOf(devices.devices, true, category), [devices, category]);
  const scale = useMemo(() => barScale(devices.devices), [devices]);
  useExport({
    table: () => devicesFile(devices),
    legend: () =>
      seriesOf(devices).map(({ name, label }) => ({
        label,
        fill: { colour: seriesColour(name), pattern: "plain" },
      })),
    drawing: () => <DevicesDrawing devices={devices} sort={sort} />,
  });
  if (devices.devices.length === 0) {
    return (
      <Nothing
        title={`No ${devices.phase} step of ${devices.run} was recorded on a device`}
        sentences={["Choose another phase above."]}
      />
    );
  }
  const unit = unitOf(Math.max(...devices.devices.map(({ peak_bytes }) => peak_bytes)));
  return (
    <InUnit value={unit}>
      <div class="layers-view devices">
        <div class="devices-head">
          <h2 class="verdict" data-testid="imbalance" title={devicesSummary(devices)}>
            {unbroken(devices.imbalance?.sentence ?? devicesSummary(devices))}
          </h2>
          {devices.rolled_up && <Search label="Search devices" placeholder="Search devices" />}
          <div class="segments">
            <button
              type="button"
              aria-pressed={columns}
              onClick={() => store.choose({ columns: !columns })}
            >
              All columns
            </button>
            <UnitButton />
          </div>
        </div>
        {(devices.rolled_up || alignedStep(devices.devices) === null) && (
          <p class="small">
            {unbroken(`${devicesSummary(devices)}. ${breakdownNote(devices.devices)}`)}
          </p>
        )}
        <ConspicuousList devices={devices} />
        {devices.damage.map((sentence) => (
          <p key={sentence} class="small warn" data-testid="left-out">
            {`${sentence.slice(0, 1).toUpperCase()}${sentence.slice(1)}.`}
          </p>
        ))}
        <DeviceTable devices={devices} scale={scale} {...shown} />
        <DeviceLayers
          rows={shown.lines.flatMap((line) => (line.kind === "device" ? line.device : []))}
          phase={devices.phase}
        />
        <Legend groups={groups} devices={devices} scale={scale} />
        {devices.steps.step.length > 0 && <DevicesCharts devices={devices} />}
      </div>
    </InUnit>
  );
}

const [WIDTH, LEFT, RIGHT, ROW, BAR] = [1100, 190, 200, 24, 16];
const [LEGEND_COLUMN, LEGEND_ROW] = [220, 20];

function DevicesDrawing({ devices, sort }: { devices: Devices; sort: DeviceSort }) {
  const ink = inks();
  const groups = groupsOf(devices.devices);
  const scale = barScale(devices.devices);
  const unknown: Fill = { colour: ink.faint, pattern: "hatched" };
  const fills = [unknown, ...groups.map(fillOf)];
  const rows = sortedDevices(devices.devices, sort);
  const x = (share: number): number => LEFT + share * (WIDTH - LEFT - RIGHT);
  const across = Math.floor((WIDTH - 16) / LEGEND_COLUMN);
  const height = rows.length * ROW + (Math.ceil(groups.length / across) + 1) * LEGEND_ROW;
  return (
    <SvgDrawing
      title={`Devices of ${devices.run}, ${devices.phase}`}
      width={WIDTH}
      height={height}
      ink={ink}
    >
      <Patterns fills={fills} ground={ink.background} />
      {rows.map((row, index) => {
        const { segments, peak, capacity } = deviceBar(row, scale);
        const top = index * ROW + (ROW - BAR) / 2;
        return (
          <g key={row.device}>
            <text x={LEFT - 8} y={top + 12} text-anchor="end" fill={ink.text}>
              {row.device}
            </text>
            {row.breakdown === null && (
              <rect x={LEFT} y={top} width={x(peak) - LEFT} height={BAR} fill={svgFill(unknown)} />
            )}
            {segments.map(({ key, group, from, to }) => {
              const fill = svgFill(fillOf(group));
              return (
                <rect
                  key={key}
                  x={x(from)}
                  y={top}
                  width={x(to) - x(from)}
                  height={BAR}
                  fill={fill}
                />
              );
            })}
            <path d={`M${x(peak)} ${top - 2}v${BAR + 4}`} stroke={ink.line} stroke-width="2" />
            {capacity !== null && (
              <path
                d={`M${x(capacity)} ${top - 2}v${BAR + 4}`}
                stroke={ink.capacity}
                stroke-width="1.5"
                stroke-dasharray="3 2"
              />
            )}
            <text x={WIDTH - RIGHT + 10} y={top + 12} fill={ink.text}>
              {formatBytes(row.peak_bytes)}
              {row.capacity_bytes === null ? "" : ` of ${formatBytes(row.capacity_bytes)}`}
            </text>
          </g>
        );
      })}
      {groups.map((group, index) => {
        const [left, top] = [
          8 + (index % across) * LEGEND_COLUMN,
          rows.length * ROW + (Math.floor(index / across) + 0.5) * LEGEND_ROW,
        ];
        return (
          <g key={groupKey(group)}>
            <rect x={left} y={top} width="12" height="12" fill={svgFill(fillOf(group))} />
            <text x={left + 18} y={top + 10} fill={ink.faint}>
              {groupLabel(group)}
            </text>
          </g>
        );
      })}
    </SvgDrawing>
  );
}

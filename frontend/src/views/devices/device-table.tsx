/** The table of all devices: sorted, with the arrow keys going from device to device. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { byteRange } from "../../charts/axis";
import { formatBytes, formatCount, formatExact, formatKnown } from "../../lib/bytes";
import { groupKey, groupLabel, WORDS } from "../../model/categories";
import {
  DEVICE_SORTS,
  alignedStep,
  ascends,
  breakdownNote,
  deviceLines,
  ends,
  stackedParts,
  workerFacts,
  workerTitle,
  type DeviceLine,
  type Devices,
  type DeviceSort,
} from "../../model/devices";
import type { Choices } from "../../state/address";
import { matcher } from "../../state/runs";
import { fillOf, inks } from "../../theme/palette";
import { useStore, isMuted, useChoices } from "../shared/context";
import { useExact, rowClasses, Bytes } from "../shared/figures";
import { LongTable, SortedColumn, arrowKeys, useScrollWindow } from "../shared/long-table";
import { tipOf } from "../shared/tips";
import type { DeviceRow as Row, Group, WorkerInfo } from "../../schema";

/**
 * Bytes at the right end of all bars: the largest capacity, or the highest peak if that would
 * squash the bars.
 */
export function barScale(devices: readonly Row[]): number {
  const peaks = devices.flatMap(({ peak_bytes, breakdown }) => [
    peak_bytes,
    breakdown?.peak_bytes ?? 0,
  ]);
  const highest = peaks.reduce((most, bytes) => Math.max(most, bytes), 1);
  const capacity = devices.reduce(
    (most, { capacity_bytes }) => Math.max(most, capacity_bytes ?? 0),
    0,
  );
  return capacity > 0 && byteRange(highest, capacity).capacityInside
    ? Math.max(capacity, highest)
    : highest;
}

/** Places on the scale, 0 to 1; of a capacity that is off the scale null. */
export function deviceBar({ breakdown, peak_bytes, capacity_bytes }: Row, scale: number) {
  let level = 0;
  const segments = (breakdown ? stackedParts(breakdown) : []).map(
    ({ category, trainable, bytes }) => {
      const group: Group = { category, trainable };
      const from = level / scale;
      level += bytes;
      return { key: groupKey(group), group, bytes, from, to: level / scale };
    },
  );
  return {
    segments,
    peak: peak_bytes / scale,
    capacity: capacity_bytes !== null && capacity_bytes <= scale ? capacity_bytes / scale : null,
  };
}

const percent = (share: number): string => `${(share * 100).toFixed(3)}%`;

function Bar({ row, scale }: { row: Row; scale: number }) {
  const { category } = useChoices();
  const { segments, peak, capacity } = deviceBar(row, scale);
  const said = row.breakdown ? `breakdown of step ${row.breakdown.step}` : "breakdown unknown";
  return (
    <div class="device-bar" role="img" aria-label={`peak ${formatBytes(row.peak_bytes)}, ${said}`}>
      {segments.map(({ key, group, bytes, from, to }) => {
        const fill = fillOf(group);
        const muted = isMuted({ hovered: null, category }, [key], group.category);
        return (
          <i
            key={key}
            class={`fill ${fill.pattern}${muted ? " pale" : ""}`}
            style={{ "--fill": fill.colour, width: percent(to - from) }}
            data-part={key}
            data-bytes={bytes}
            data-tip={tipOf(bytes, groupLabel(group), `${row.device}, ${said}`)}
          />
        );
      })}
      {row.breakdown === null && (
        <i class="fill hatched" style={{ "--fill": inks().faint, width: percent(peak) }} />
      )}
      <i class="at-peak" style={{ left: percent(peak) }} />
      {capacity !== null && <i class="at-capacity" style={{ left: percent(capacity) }} />}
    </div>
  );
}

type FigureName = "peak_bytes" | "headroom_bytes" | "capacity_bytes" | "pool_bytes";

const Size = ({ name, bytes }: { name: FigureName; bytes: number | null }) => (
  <td
    class={`number column-${name}`}
    data-figure={name}
    data-bytes={bytes ?? ""}
    aria-label={bytes === null ? "unknown" : formatExact(bytes)}
  >
    <Bytes of={bytes} />
  </td>
);

const cellOf = (row: Row, key: FigureName | "peak_step") =>
  key === "peak_step" ? (
    <td key={key} class="number column-peak_step" data-figure={key}>
      {formatCount(row.peak_step)}
    </td>
  ) : (
    <Size key={key} name={key} bytes={row[key]} />
  );

const sizeText = (bytes: number | null, name: string): string => `${name} ${formatKnown(bytes)}`;

function factsOf(row: Row, worker: WorkerInfo | null): string[] {
  const { breakdown } = row;
  return [
    `${row.device}: ${WORDS.peak_bytes.label} at step ${row.peak_step}`,
    `${sizeText(row.capacity_bytes, "capacity")}, ${sizeText(row.headroom_bytes, "headroom")}, ${sizeText(row.pool_bytes, "pool")}`,
    breakdown
      ? `breakdown of step ${breakdown.step}: ${formatBytes(breakdown.peak_bytes)}`
      : "breakdown unknown: not traced",
    row.last_in_use_bytes === null
      ? "bytes in use at step end: unknown"
      : `last recorded: ${formatBytes(row.last_in_use_bytes)} in use at step end`,
    ...(worker?.stopped_early ? [worker.stopped_early] : []),
  ];
}

interface DeviceRowProps {
  row: Row;
  columns: readonly DeviceSort[];
  worker: WorkerInfo | null;
  below: boolean;
  scale: number;
  selected: boolean;
  select: () => void;
}

/** A click anywhere selects the device; its name is a button for the keyboard. */
const DeviceRow = ({ row, columns, worker, below, scale, selected, select }: DeviceRowProps) => (
  <tr
    class={rowClasses({ "device-row": true, selected })}
    aria-current={selected ? "true" : undefined}
    data-device={row.device}
    data-tip={tipOf(row.peak_bytes, ...factsOf(row, worker))}
    onClick={select}
  >
    <th scope="row">
      <button type="button" class="layer-name" aria-pressed={selected}>
        {below ? row.name : row.device}
      </button>
    </th>
    {columns.map((key) => (key === "device" || key === "ooms" ? null : cellOf(row, key)))}
    <td class="column-bar">
      <Bar row={row} scale={scale} />
    </td>
    {columns.includes("ooms") && (
      <td class="number column-ooms" data-figure="ooms">
        {row.ooms > 0 && <span class="badge">{row.ooms}</span>}
      </td>
    )}
  </tr>
);

/** The columns beside the bars; of those that the bars show, the one that sorts. */
function columnsOf({ devices }: Devices, { columns, deviceSort }: Choices): DeviceSort[] {
  const failed = devices.some(({ ooms }) => ooms > 0);
  const brief = ["device", "peak_bytes", deviceSort, ...(failed ? ["ooms"] : [])];
  return DEVICE_SORTS.filter((key) => columns || brief.includes(key));
}

const COLUMN_WORDS: Record<DeviceSort, readonly [label: string, hint: string]> = {
  device: ["device", "by worker and number"],
  peak_bytes: ["peak", "maximum bytes in use during a step"],
  peak_step: ["at step", "the step of the peak"],
  headroom_bytes: ["headroom", "capacity − peak"],
  capacity_bytes: ["capacity", WORDS.capacity_bytes.meaning],
  pool_bytes: ["pool", "bytes that the allocator has reserved, as last recorded"],
  ooms: ["OOM", "number of failed allocations"],
};

interface HeadProps {
  devices: Devices;
  columns: readonly DeviceSort[];
  scale: number;
}

function Head({ devices, columns, scale }: HeadProps) {
  const store = useStore();
  const { deviceSort: sort } = useChoices();
  const step = alignedStep(devices.devices);
  const button = (key: DeviceSort) => {
    const [label, hint] = COLUMN_WORDS[key];
    return (
      <SortedColumn
        key={key}
        name={key}
        label={label}
        hint={`Sort by ${label}: ${hint}`}
        isNumber={key !== "device"}
        sorted={key === sort}
        ascending={ascends(key)}
        choose={() => store.choose({ deviceSort: key })}
      />
    );
  };
  return (
    <thead>
      <tr>
        {columns.filter((key) => key !== "ooms").map(button)}
        <th scope="col" class="column-bar" title={breakdownNote(devices.devices)}>
          <span class="scale-ends">
            <span>{step === null ? "breakdown" : `step ${step}`}</span>
            <span title="Right end of all bars">{formatBytes(scale)}</span>
          </span>
        </th>
        {columns.includes("ooms") && button("ooms")}
      </tr>
    </thead>
  );
}

interface WorkerRowProps {
  worker: WorkerInfo;
  width: number;
}

function WorkerRow({ worker, width }: WorkerRowProps) {
  const { stopped_early } = worker;
  const text = `${workerFacts(worker)}${stopped_early === null ? "" : ". "}`;
  return (
    <tr class="subtotal" data-worker={worker.worker}>
      <th
        scope="rowgroup"
        colSpan={width}
        title={`${workerTitle(worker)}: ${text}${stopped_early ?? ""}`}
      >
        {workerTitle(worker)} <span class="small">{text}</span>
        {stopped_early !== null && <span class="warn">{stopped_early}</span>}
      </th>
    </tr>
  );
}

const lineOf = (lines: readonly DeviceLine[], device: string | null): number =>
  lines.findIndex((line) => line.kind === "device" && line.device.device === device);

interface MoreRowProps {
  count: number;
  width: number;
  show: () => void;
}

const MoreRow = ({ count, width, show }: MoreRowProps) => (
  <tr class="subtotal">
    <th scope="rowgroup" colSpan={width}>
      <button type="button" class="link" onClick={show}>
        {`Show ${formatCount(count)} more devices`}
      </button>
    </th>
  </tr>
);

/**
 * The lines that are shown: those that the search finds, otherwise of many devices both ends until
 * all are wanted.
 */
export function useLines(devices: Devices) {
  const { deviceSort: sort, search } = useChoices();
  const [all, setAll] = useState(false);
  const lines = useMemo(() => {
    const match = matcher(search);
    if (search)
      return deviceLines(
        {
          ...devices,
          devices: devices.devices.filter(({ device }) => match.test(device)),
          workers: [],
        },
        sort,
      );
    const every = deviceLines(devices, sort);
    return all || !devices.rolled_up ? every : ends(every);
  }, [devices, sort, search, all]);
  return { lines, showAll: () => setAll(true) };
}

interface DeviceTableProps extends ReturnType<typeof useLines> {
  devices: Devices;
  scale: number;
}

export function DeviceTable({ devices, scale, lines, showAll }: DeviceTableProps) {
  const store = useStore();
  const selected = store.device.value;
  const columns = columnsOf(devices, useChoices());
  const width = columns.length + 1; // with that of the bars
  const workers = useMemo(
    () => new Map(devices.workers.map((worker) => [worker.worker, worker])),
    [devices],
  );
  const scroll = useScrollWindow(lines.length);
  const arrows = arrowKeys(
    scroll.host,
    () => ({
      all: lines.flatMap((line) => (line.kind === "device" ? [line.device.device] : [])),
      selected: store.device.peek(),
    }),
    (device) => {
      store.choose({ device });
      scroll.reveal(lineOf(lines, device));
    },
  );
  const below = lines.some(({ kind }) => kind === "worker");
  const shown = useRef(false);
  useEffect(() => {
    // Once: a row that is clicked is in sight, and sorting shows the top of the list.
    if (shown.current) return;
    shown.current = true;
    scroll.reveal(lineOf(lines, selected));
  }, []);
  return (
    <LongTable
      label="Table of devices"
      testid="devices"
      class={useExact() ? "layers exact" : "layers"}
      lines={lines}
      scroll={scroll}
      onKeyDown={arrows}
      head={<Head devices={devices} columns={columns} scale={scale} />}
      row={(line) =>
        line.kind === "worker" ? (
          <WorkerRow key={`worker ${line.worker.worker}`} worker={line.worker} width={width} />
        ) : line.kind === "more" ? (
          <MoreRow key="more" count={line.count} width={width} show={showAll} />
        ) : (
          <DeviceRow
            key={line.device.device}
            row={line.device}
            columns={columns}
            worker={workers.get(line.device.worker) ?? null}
            below={below}
            scale={scale}
            selected={line.device.device === selected}
            select={() => store.choose({ device: line.device.device })}
          />
        )
      }
    />
  );
}

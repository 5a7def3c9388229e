/** The table of all devices: sorted, with the arrow keys going from device to device. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import { formatBytes, type Unit } from "../../lib/bytes";
import {
  DEVICE_SORTS,
  ascends,
  breakdownNote,
  deviceLines,
  workerFacts,
  workerTitle,
  type DeviceLine,
  type Devices,
  type DeviceSort,
  type WorkerInfo,
} from "../../model/devices";
import { useStore } from "../shared/context";
import { useExact } from "../shared/figures";
import { useScrollWindow } from "../shared/scroll-window";
import { DeviceRow } from "./device-row";

const ROW_HEIGHT = 28;
const COLUMNS = DEVICE_SORTS.length + 1;

const LABELS: Record<DeviceSort, string> = {
  device: "device",
  peak_bytes: "peak",
  peak_step: "at step",
  headroom_bytes: "headroom",
  capacity_bytes: "capacity",
  pool_bytes: "pool",
  ooms: "OOM",
};

const HINTS: Record<DeviceSort, string> = {
  device: "by worker and number",
  peak_bytes: "maximum bytes in use during a step",
  peak_step: "the step of the peak",
  headroom_bytes: "capacity − peak",
  capacity_bytes: "the allocator's limit in bytes",
  pool_bytes: "bytes that the allocator has reserved, as last recorded",
  ooms: "number of failed allocations",
};

function Head({ devices, scale }: { devices: Devices; scale: number }) {
  const store = useStore();
  const { deviceSort: sort } = store.choices.value;
  const button = (key: DeviceSort) => (
    <th
      key={key}
      scope="col"
      class={`column-${key}${key === "device" ? "" : " number"}`}
      aria-sort={key === sort ? (ascends(key) ? "ascending" : "descending") : "none"}
    >
      <button type="button" title={`Sort by ${LABELS[key]}: ${HINTS[key]}`} onClick={() => store.choose({ deviceSort: key })}>
        {LABELS[key]}
        {key === sort && (
          <span class="arrow" aria-hidden="true">
            {ascends(key) ? "▲" : "▼"}
          </span>
        )}
      </button>
    </th>
  );
  return (
    <thead>
      <tr>
        {DEVICE_SORTS.filter((key) => key !== "ooms").map(button)}
        <th scope="col" class="column-bar" title={breakdownNote(devices.devices)}>
          <span class="scale-ends">
            <span>breakdown</span>
            <span title="Right end of all bars">{formatBytes(scale)}</span>
          </span>
        </th>
        {button("ooms")}
      </tr>
    </thead>
  );
}

function WorkerRow({ worker }: { worker: WorkerInfo }) {
  const { stopped_early } = worker;
  const text = `${workerFacts(worker)}${stopped_early === null ? "" : ". "}`;
  return (
    <tr class="subtotal" data-worker={worker.worker}>
      <th scope="rowgroup" colSpan={COLUMNS} title={`${workerTitle(worker)}: ${text}${stopped_early ?? ""}`}>
        {workerTitle(worker)} <span class="small">{text}</span>
        {stopped_early !== null && <span class="warn">{stopped_early}</span>}
      </th>
    </tr>
  );
}

/** Arrow keys select the device of the next or the previous row; Home and End the first and the last. */
function useArrows(lines: readonly DeviceLine[], host: { current: HTMLElement | null }, reveal: (index: number) => void) {
  const store = useStore();
  return (event: KeyboardEvent): void => {
    const stops = lines.flatMap((line) => (line.kind === "device" ? [line.device.device] : []));
    const now = stops.indexOf(store.device.peek() ?? "");
    const goal = { ArrowDown: now + 1, ArrowUp: Math.max(now - 1, 0), Home: 0, End: stops.length - 1 }[event.key];
    const next = goal === undefined ? undefined : stops[goal];
    if (next === undefined) return;
    event.preventDefault();
    // The row with the focus may scroll out of the document.
    host.current?.focus({ preventScroll: true });
    store.choose({ device: next });
    reveal(lines.findIndex((line) => line.kind === "device" && line.device.device === next));
  };
}

export function DeviceTable({ devices, unit, scale }: { devices: Devices; unit: Unit; scale: number }) {
  const store = useStore();
  const { deviceSort: sort } = store.choices.value;
  const selected = store.device.value;
  const lines = useMemo(() => deviceLines(devices, sort), [devices, sort]);
  const workers = useMemo(() => new Map(devices.workers.map((worker) => [worker.worker, worker])), [devices]);
  const { host, first, last, reveal, onScroll } = useScrollWindow(lines.length, ROW_HEIGHT);
  const arrows = useArrows(lines, host, reveal);
  const below = lines.some(({ kind }) => kind === "worker");
  const shown = useRef(false);
  useEffect(() => {
    // Once: a row that is clicked is in sight, and sorting shows the top of the list.
    if (shown.current) return;
    shown.current = true;
    reveal(lines.findIndex((line) => line.kind === "device" && line.device.device === selected));
  }, []);
  const filler = (rows: number) => rows > 0 && <tr aria-hidden="true" style={{ height: `${rows * ROW_HEIGHT}px` }} />;
  return (
    <div class="layer-scroll" ref={host} onScroll={onScroll} onKeyDown={arrows} tabIndex={0} role="region" aria-label="Table of devices">
      <table class={useExact() ? "layers exact" : "layers"} data-testid="devices" aria-rowcount={lines.length + 1}>
        <Head devices={devices} scale={scale} />
        <tbody>
          {filler(first)}
          {lines
            .slice(first, last)
            .map((line) =>
              line.kind === "worker" ? (
                <WorkerRow key={`worker ${line.worker.worker}`} worker={line.worker} />
              ) : (
                <DeviceRow
                  key={line.device.device}
                  row={line.device}
                  worker={workers.get(line.device.worker) ?? null}
                  below={below}
                  unit={unit}
                  scale={scale}
                  selected={line.device.device === selected}
                  select={() => store.choose({ device: line.device.device })}
                />
              ),
            )}
          {filler(lines.length - last)}
        </tbody>
      </table>
    </div>
  );
}

/** A device's row: its figures, and a stacked bar of its breakdown. */

import { formatBytes, formatCount, formatExact, type Unit } from "../../lib/bytes";
import { groupLabel } from "../../model/categories";
import type { DeviceRow as Row, WorkerInfo } from "../../model/devices";
import { WORDS } from "../../model/words";
import { INKS, fillOf } from "../../theme/palette";
import { schemeOf, useStore, isMuted } from "../shared/context";
import { rowClasses, useFigureText } from "../shared/figures";
import { tipOf } from "../shared/tips";
import { deviceBar } from "./device-bars";

const percent = (share: number): string => `${(share * 100).toFixed(3)}%`;

/** The breakdown, hatched up to the peak where it is unknown; a line at the peak and one at the capacity. */
function Bar({ row, scale }: { row: Row; scale: number }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { category } = store.choices.value;
  const { segments, peak, capacity } = deviceBar(row, scale);
  const said = row.breakdown ? `breakdown of step ${row.breakdown.step}` : "breakdown unknown";
  return (
    <div class="device-bar" role="img" aria-label={`peak ${formatBytes(row.peak_bytes)}, ${said}`}>
      {segments.map(({ key, group, bytes, from, to }) => {
        const fill = fillOf(group.category, group.trainable, scheme);
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
      {row.breakdown === null && <i class="fill hatched" style={{ "--fill": INKS[scheme].faint, width: percent(peak) }} />}
      <i class="at-peak" style={{ left: percent(peak) }} />
      {capacity !== null && <i class="at-capacity" style={{ left: percent(capacity) }} />}
    </div>
  );
}

type FigureName = "peak_bytes" | "headroom_bytes" | "capacity_bytes" | "pool_bytes";

function Size({ name, bytes, unit }: { name: FigureName; bytes: number | null; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td
      class={`number column-${name}`}
      data-figure={name}
      data-bytes={bytes ?? ""}
      aria-label={bytes === null ? "unknown" : formatExact(bytes)}
    >
      {bytes === null ? "–" : text(bytes)}
    </td>
  );
}

const sizeText = (bytes: number | null, name: string): string => `${name} ${bytes === null ? "unknown" : formatBytes(bytes)}`;

/** The facts of a row, for its tooltip. */
function factsOf(row: Row, worker: WorkerInfo | null): string[] {
  const { breakdown } = row;
  return [
    `${row.device}: ${WORDS.peak_bytes.label} at step ${row.peak_step}`,
    `${sizeText(row.capacity_bytes, "capacity")}, ${sizeText(row.headroom_bytes, "headroom")}, ${sizeText(row.pool_bytes, "pool")}`,
    breakdown ? `breakdown of step ${breakdown.step}: ${formatBytes(breakdown.peak_bytes)}` : "breakdown unknown: not traced",
    row.last_in_use_bytes === null
      ? "bytes in use at step end: unknown"
      : `last recorded: ${formatBytes(row.last_in_use_bytes)} in use at step end`,
    ...(worker?.stopped_early ? [worker.stopped_early] : []),
  ];
}

interface DeviceRowProps {
  row: Row;
  worker: WorkerInfo | null;
  /** Whether a header above names the worker. */
  below: boolean;
  unit: Unit;
  scale: number;
  selected: boolean;
  select: () => void;
}

/** A click anywhere selects the device; its name is a button for the keyboard. */
export function DeviceRow({ row, worker, below, unit, scale, selected, select }: DeviceRowProps) {
  return (
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
        {!below && worker?.stopped_early && <span class="small warn"> stopped early</span>}
      </th>
      <Size name="peak_bytes" bytes={row.peak_bytes} unit={unit} />
      <td class="number column-peak_step" data-figure="peak_step">
        {formatCount(row.peak_step)}
      </td>
      <Size name="headroom_bytes" bytes={row.headroom_bytes} unit={unit} />
      <Size name="capacity_bytes" bytes={row.capacity_bytes} unit={unit} />
      <Size name="pool_bytes" bytes={row.pool_bytes} unit={unit} />
      <td class="column-bar">
        <Bar row={row} scale={scale} />
      </td>
      <td class="number column-ooms" data-figure="ooms">
        {row.ooms > 0 && <span class="badge">{row.ooms}</span>}
      </td>
    </tr>
  );
}

/** All devices and workers of a run side by side. */

import { useEffect, useMemo } from "preact/hooks";

import { unitOf, unbroken } from "../../lib/bytes";
import { groupKey, groupLabel, type Group } from "../../model/categories";
import { breakdownNote, devicesFile, devicesSummary, groupsOf, type Devices } from "../../model/devices";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore, useCategoryRow } from "../shared/context";
import { LegendItem, Search } from "../shared/controls";
import { useExport } from "../shared/export";
import { Swatch, UnitButton } from "../shared/figures";
import { Nothing } from "../shared/states";
import { ConspicuousList } from "./conspicuous-list";
import { barScale, deviceBar } from "./device-bars";
import { DeviceTable } from "./device-table";
import { DevicesCharts } from "./devices-charts";
import { DevicesDrawing } from "./devices-drawing";
import { seriesColour, seriesOf } from "./devices-spec";

/** The categories of the bars: a click selects one in every view. */
function Legend({ groups, devices, scale }: { groups: readonly Group[]; devices: Devices; scale: number }) {
  const scheme = schemeOf(useStore());
  const ofCategory = useCategoryRow();
  return (
    <p class="legend bars-legend">
      {groups.map((group) => {
        const key = groupKey(group);
        const { chosen, onChoose } = ofCategory(key, group.category);
        return (
          <button key={key} type="button" class="legend-item" aria-pressed={chosen} onClick={onChoose}>
            <Swatch fill={fillOf(group.category, group.trainable, scheme)} />
            {groupLabel(group)}
          </button>
        );
      })}
      {devices.devices.some(({ breakdown }) => breakdown === null) && <LegendItem kind="hatched">breakdown unknown</LegendItem>}
      <LegendItem kind="upright">measured peak</LegendItem>
      {devices.devices.some((row) => deviceBar(row, scale).capacity !== null) && <LegendItem kind="upright limit">capacity</LegendItem>}
    </p>
  );
}

export function DevicesView({ devices }: { devices: Devices }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { deviceSort: sort } = store.choices.value;
  const groups = useMemo(() => groupsOf(devices.devices), [devices]);
  const scale = useMemo(() => barScale(devices.devices), [devices]);
  useEffect(() => {
    // In natural order, many devices say nothing.
    if (devices.rolled_up && sort === "device") store.choose({ deviceSort: "peak_bytes" });
  }, []);
  useExport({
    table: () => devicesFile(devices),
    legend: () => seriesOf(devices).map(({ name, label }) => ({ label, fill: { colour: seriesColour(name, scheme), pattern: "plain" } })),
    drawing: () => <DevicesDrawing devices={devices} sort={sort} scheme={scheme} />,
  });
  if (devices.devices.length === 0) {
    return (
      <Nothing title={`No ${devices.phase} step of ${devices.run} was recorded on a device`}>
        <p>Choose another phase above.</p>
      </Nothing>
    );
  }
  const unit = unitOf(devices.devices.reduce((most, { peak_bytes }) => Math.max(most, peak_bytes), 0));
  return (
    <div class="layers-view devices">
      <div class="devices-head">
        <h2 class="verdict" data-testid="imbalance">
          {unbroken(devices.imbalance?.sentence ?? devicesSummary(devices))}
        </h2>
        {devices.rolled_up && <Search label="Search devices" placeholder="Search devices" />}
        <UnitButton unit={unit} />
      </div>
      <p class="small">{unbroken([...(devices.imbalance ? [devicesSummary(devices)] : []), breakdownNote(devices.devices)].join(" "))}</p>
      <ConspicuousList devices={devices} />
      {devices.damage.map((sentence) => (
        <p key={sentence} class="small warn" data-testid="left-out">
          {`${sentence.slice(0, 1).toUpperCase()}${sentence.slice(1)}.`}
        </p>
      ))}
      <DeviceTable devices={devices} unit={unit} scale={scale} />
      <Legend groups={groups} devices={devices} scale={scale} />
      {devices.steps.step.length > 0 && <DevicesCharts devices={devices} />}
    </div>
  );
}

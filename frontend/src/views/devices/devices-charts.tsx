/** The charts below the table: the devices' peaks over the steps, with the step that all views share. */

import { useMemo } from "preact/hooks";

import { stepSentence, type Devices } from "../../model/devices";
import { ofOneKind } from "../../model/run";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { useStepsChart } from "../shared/frame";
import { peaksSpec, seriesColour, seriesOf, sumSpec } from "./devices-spec";

export function DevicesCharts({ devices }: { devices: Devices }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const specs = useMemo(
    () => ({ peaks: peaksSpec(devices, choices, scheme), sum: sumSpec(devices, choices, scheme) }),
    [devices, choices.zoom, scheme],
  );
  const chart = useStepsChart(devices.steps.step, specs.peaks.x);
  const describe = (row: number): string => stepSentence(devices, row);
  const several = ofOneKind(devices.devices).length > 1;
  const row = chart.cursor ?? chart.pin ?? chart.rest ?? 0;
  return (
    <section aria-label="Peaks over steps">
      <p class="small one-line" data-testid="devices-at-step" data-step={devices.steps.step[row]}>
        {describe(row)}
      </p>
      <Chart
        {...chart}
        height="small"
        label={several ? "Highest and lowest peak of the devices over steps." : "Peak of the device over steps."}
        spec={specs.peaks}
        describe={describe}
      />
      {specs.sum && <Chart {...chart} height="small" label="Sum in use of all devices over steps." spec={specs.sum} describe={describe} />}
      <p class="legend">
        {seriesOf(devices).map(({ name, label }) => (
          <LegendItem key={name} kind="line colour" colour={seriesColour(name, scheme)}>
            {label}
          </LegendItem>
        ))}
      </p>
    </section>
  );
}

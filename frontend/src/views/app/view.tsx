/**
 * The shown view, once its data has arrived: what draws each view of the table in state/views.ts.
 */

import type { FunctionComponent } from "preact";

import type { Overview } from "../../model/overview";
import { isMissing } from "../../state/runs";
import type { ViewName } from "../../state/views";
import { ActivationsView } from "../activations/activations-view";
import { CompareView } from "../compare/compare-view";
import { DevicesView } from "../devices/devices-view";
import { FragmentationView } from "../fragmentation/fragmentation-view";
import { FrozenView } from "../frozen/frozen-view";
import { HostView } from "../host/host-view";
import { LayerView } from "../layer/layer-view";
import { LayersView } from "../layers/layers-view";
import { OomView } from "../oom/oom-view";
import { Diagnosis, OverviewView } from "../overview/overview-view";
import { FocusScope, useStore, useChoices } from "../shared/context";
import { Await, NoSteps, Nothing, Skeleton } from "../shared/states";
import { StepView } from "../step/step-view";
import { WhatIfView } from "../what-if/what-if-view";
import type { RunInfo } from "../../schema";

type OfRun = FunctionComponent<{ run: RunInfo }>;

const NO_ACTIVATIONS =
  "Record them with `tb_memplugin.summary.layer_activations`, or click another run.";

const RecordedActivations: OfRun = ({ run }) => {
  const store = useStore();
  if (run.activation_layers === 0)
    return (
      <Nothing title={`${run.run} has no recorded activations`} sentences={[NO_ACTIVATIONS]} />
    );
  return (
    <Await loaded={store.activations.value}>
      {(activations) => <ActivationsView key={activations.run} activations={activations} />}
    </Await>
  );
};

const NotComparable = ({ why }: { why: string }) => (
  <Nothing title="Nothing to compare" sentences={[why]} />
);

const Compared: OfRun = ({ run }) => {
  const store = useStore();
  const other = store.other.value;
  const hasNone = `${other?.run ?? ""} has no ${store.phase.value} step.`;
  if (other && !store.comparable.value)
    return (
      <NotComparable why={`${hasNone} Choose another phase above, or another run in the list.`} />
    );
  return (
    <Await loaded={store.shownOverview.value}>
      {(a) => (
        <Await loaded={store.otherOverview.value}>
          {(b) =>
            other && a.rows > 0 && b.rows > 0 ? (
              <CompareView a={a} b={b} run={run} other={other} />
            ) : (
              <NotComparable
                why={`A or B has no ${a.phase} step on this device. Choose another phase or device above.`}
              />
            )
          }
        </Await>
      )}
    </Await>
  );
};

const Fragmentation: OfRun = () => {
  const store = useStore();
  return (
    <Await loaded={store.pool.value}>
      {(pool) => (
        <Await loaded={store.snapshotList.value}>
          {(list) => (
            <Await loaded={store.whole.value}>
              {() => <FragmentationView pool={pool} list={list} />}
            </Await>
          )}
        </Await>
      )}
    </Await>
  );
};

const NO_HOST =
  "The recorder measures the memory of the training process. This run was not recorded that way, or not in this phase.";

const Host: OfRun = ({ run }) => (
  <Await loaded={useStore().hostMemory.value}>
    {(host) =>
      host.rows > 0 ? (
        <HostView host={host} />
      ) : (
        <Nothing title={`${run.run} has no host memory`} sentences={[NO_HOST]} />
      )
    }
  </Await>
);

const AllDevices: OfRun = ({ run }) => (
  <Await loaded={useStore().devices.value}>
    {(devices) => <DevicesView key={run.run} devices={devices} />}
  </Await>
);

interface OverStepsProps {
  overview: Overview;
  /** Changes with the run, the device and the phase: the view is mounted again. */
  at: string;
}

const overSteps = (Drawn: FunctionComponent<OverStepsProps>): OfRun =>
  function OverSteps() {
    const store = useStore();
    return (
      <Await loaded={store.shownOverview.value}>
        {(overview) => {
          if (overview.rows === 0) return <NoSteps of={overview} />;
          const { run, device, phase } = overview;
          return <Drawn overview={overview} at={`${run}/${device}/${phase}`} />;
        }}
      </Await>
    );
  };

const OverviewOfSteps = overSteps(({ overview, at }) => (
  <OverviewView key={at} overview={overview} />
));

const VIEW_OF: Readonly<Record<ViewName, OfRun>> = {
  overview: ({ run }) => (
    <>
      <Diagnosis key={run.run} run={run} />
      <OverviewOfSteps run={run} />
    </>
  ),
  layers: overSteps(({ overview, at }) => <LayersView key={at} overview={overview} />),
  frozen: overSteps(({ overview, at }) => (
    <Await loaded={useStore().ledgerTotals.value}>
      {(totals) => <FrozenView key={at} overview={overview} totals={totals} />}
    </Await>
  )),
  step: ({ run }) => <StepView run={run} />,
  fragmentation: Fragmentation,
  host: Host,
  devices: AllDevices,
  oom: ({ run }) => <OomView key={run.run} run={run} />,
  "what-if": ({ run }) => {
    const device = useStore().device.value ?? "";
    return <WhatIfView key={`${run.run}/${device}`} run={run} device={device} />;
  },
  compare: Compared,
  activations: RecordedActivations,
  layer: overSteps(({ at }) => {
    const store = useStore();
    const layer = store.choices.value.layer ?? "";
    return (
      <Await loaded={store.ledgerTotals.value}>
        {(totals) => <LayerView key={`${at}/${layer}`} totals={totals} layer={layer} />}
      </Await>
    );
  }),
};

const GONE = "It may have been renamed or deleted. Choose a run in the list.";
const NO_DATA =
  "This view needs data from `tb_memplugin.MemoryCallback` or `tb_memplugin.MemoryRecorder`.";

export function View() {
  const store = useStore();
  const run = store.primary.value;
  const view = store.view.value;
  const { primary, other, filter } = useChoices();
  const missing = [primary, view === "compare" ? other : null].find((name) =>
    isMissing(store.runs.value, name),
  );
  if (missing != null)
    return <Nothing title={`No run ${missing} in this log directory`} sentences={[GONE]} />;
  const how = filter === "" ? " to plot it" : ", or clear the filter";
  if (!run)
    return <Nothing title="No run is shown" sentences={[`Check a run in the list${how}.`]} />;
  if (run.status === "reading") return <Skeleton />;
  if (view === null)
    return <Nothing title={`${run.run} has no allocator data`} sentences={[NO_DATA]} />;
  const Shown = VIEW_OF[view];
  // The rows of a failure are not highlighted: it has no chart.
  if (view === "oom") return <Shown run={run} />;
  return (
    <FocusScope key={view}>
      <Shown run={run} />
    </FocusScope>
  );
}

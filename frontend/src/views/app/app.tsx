/** The frame: list of runs on the left, tabs above, one view. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import type { RunInfo } from "../../model/run";
import type { Loaded } from "../../state/resource";
import type { Store } from "../../state/store";
import { ActivationsView } from "../activations/activations-view";
import { Answers } from "../answers/answers";
import { CompareView } from "../compare/compare-view";
import { StoreContext, useStore } from "../shared/context";
import { DevicesView } from "../devices/devices-view";
import { Downloads } from "../shared/export";
import { FragmentationView } from "../fragmentation/fragmentation-view";
import { FrozenView } from "../frozen/frozen-view";
import { Help, useKeys } from "./help";
import { StepView } from "../step/step-view";
import { LayerView } from "../layer/layer-view";
import { LayersView } from "../layers/layers-view";
import { OomView } from "../oom/oom-view";
import { OverviewView } from "../overview/overview-view";
import { RunList } from "./run-list";
import { Empty, Fault, Nothing, Notices, Skeleton } from "../shared/states";
import { Tips } from "../shared/tips";
import { Tabs, Toolbar } from "./toolbar";
import { WhatIfView } from "../what-if/what-if-view";

/** A view once its data has arrived; before that a skeleton or the error. */
function Await<T>({ loaded, children }: { loaded: Loaded<T>; children: (value: T) => preact.ComponentChildren }) {
  const store = useStore();
  const retry = (): void => void store.reload();
  if (loaded.value === null) return loaded.error === null ? <Skeleton /> : <Fault sentence={loaded.error} retry={retry} />;
  return (
    <>
      {loaded.error !== null && <Fault sentence={`Not up to date: ${loaded.error}`} retry={retry} />}
      {children(loaded.value)}
    </>
  );
}

function RecordedActivations() {
  const store = useStore();
  const run = store.primary.value;
  if (run && run.activation_layers === 0) {
    return (
      <Nothing title={`${run.run} has no recorded activations`}>
        <p>
          Record them with <code>tb_memplugin.summary.layer_activations</code>, or click another run.
        </p>
      </Nothing>
    );
  }
  return (
    <Await loaded={store.activations.value}>{(activations) => <ActivationsView key={activations.run} activations={activations} />}</Await>
  );
}

function Compared({ run }: { run: RunInfo }) {
  const store = useStore();
  const other = store.other.value;
  if (other && !store.comparable.value)
    return (
      <Nothing title="Nothing to compare">
        <p>
          {other.run} has no {store.phase.value} step. Choose another phase above, or another run in the list.
        </p>
      </Nothing>
    );
  return (
    <Await loaded={store.shownOverview.value}>
      {(a) => (
        <Await loaded={store.otherOverview.value}>
          {(b) =>
            other && a.rows > 0 && b.rows > 0 ? (
              <CompareView a={a} b={b} run={run} other={other} />
            ) : (
              <Nothing title="Nothing to compare">
                <p>A or B has no {a.phase} step on this device. Choose another phase or device above.</p>
              </Nothing>
            )
          }
        </Await>
      )}
    </Await>
  );
}

function OfDevice({ view, run, device }: { view: "step" | "what-if"; run: RunInfo; device: string }) {
  if (view === "step") return <StepView run={run} device={device} />;
  return <WhatIfView key={`${run.run}/${device}`} run={run} device={device} />;
}

function AllDevices({ run }: { run: RunInfo }) {
  const store = useStore();
  const phase = store.phase.value;
  useLayoutEffect(() => store.wantDevicesIn(run, phase), [run, phase]);
  return <Await loaded={store.devicesIn(run, phase)}>{(devices) => <DevicesView key={run.run} devices={devices} />}</Await>;
}

/** A view of the overview: of a device's steps of one phase. */
function OverSteps() {
  const store = useStore();
  const { view } = store.choices.value;
  return (
    <Await loaded={store.shownOverview.value}>
      {(overview) => {
        if (overview.rows === 0)
          return (
            <Nothing title={`No ${overview.phase} step of ${overview.run} was recorded on ${overview.device}`}>
              <p>Choose another phase or device above.</p>
            </Nothing>
          );
        const key = `${overview.run}/${overview.device}/${overview.phase}`;
        const { layer } = store.choices.value;
        if (view === "layer" && layer !== null)
          return (
            <Await loaded={store.ledgerTotals.value}>
              {(totals) => <LayerView key={`${key}/${layer}`} totals={totals} layer={layer} />}
            </Await>
          );
        if (view === "layers" || view === "layer") return <LayersView key={key} overview={overview} />;
        if (view === "frozen")
          return (
            <Await loaded={store.ledgerTotals.value}>{(totals) => <FrozenView key={key} overview={overview} totals={totals} />}</Await>
          );
        return <OverviewView key={key} overview={overview} />;
      }}
    </Await>
  );
}

function View() {
  const store = useStore();
  const run = store.primary.value;
  const { view } = store.choices.value;
  if (!run)
    return (
      <Nothing title="No run is shown">
        <p>{store.choices.value.filter === "" ? "Check a run in the list to plot it." : "Check a run in the list, or clear the filter."}</p>
      </Nothing>
    );
  if (view === "activations") return <RecordedActivations />;
  if (view === "oom") return <OomView key={run.run} run={run} />;
  if (run.devices.length === 0) {
    if (view === "overview" && run.ooms > 0) return <OomView key={run.run} run={run} />;
    if (view === "overview" && run.activation_layers > 0) return <RecordedActivations />;
    return (
      <Nothing title={`${run.run} has no allocator data`}>
        <p>
          This view needs data from <code>tb_memplugin.MemoryCallback</code> or <code>tb_memplugin.MemoryRecorder</code>.
        </p>
      </Nothing>
    );
  }
  const device = store.device.value;
  if (device !== null && (view === "step" || view === "what-if")) return <OfDevice view={view} run={run} device={device} />;
  if (view === "fragmentation") {
    return (
      <Await loaded={store.pool.value}>
        {(pool) => (
          <Await loaded={store.snapshotList.value}>
            {(list) => <Await loaded={store.whole.value}>{() => <FragmentationView pool={pool} list={list} />}</Await>}
          </Await>
        )}
      </Await>
    );
  }
  if (view === "devices") return <AllDevices run={run} />;
  if (view === "compare") return <Compared run={run} />;
  return <OverSteps />;
}

function Frame() {
  const store = useStore();
  const help = useRef(() => {});
  useKeys(store, () => help.current());
  const [open, setOpen] = useState(false);
  const run = store.primary.value;
  return (
    <div class={open ? "frame open" : "frame"}>
      <RunList />
      <main>
        <h1 class="unseen">Memory{run ? ` of ${run.run}` : ""}</h1>
        <header class="bar">
          <button type="button" class="runs-button" aria-expanded={open} onClick={() => setOpen(!open)}>
            Runs ({store.selected.value.length})
          </button>
          <Tabs />
          <span class="bar-end">
            {run && (
              <span class="bar-run" title={run.run}>
                {run.run}
              </span>
            )}
            <Downloads />
            <Help open={help} />
          </span>
        </header>
        <Toolbar />
        {run && <Answers run={run} />}
        {run && <Notices run={run} />}
        <View />
      </main>
      <Tips />
    </div>
  );
}

function Page() {
  const store = useStore();
  const { value, error } = store.answer.value;
  const retry = (): void => void store.reload();
  if (value === null) return error === null ? <Skeleton /> : <Fault sentence={error} retry={retry} />;
  return (
    <>
      {error !== null && <Fault sentence={`Not up to date: ${error}`} retry={retry} />}
      {value.runs.length === 0 ? <Empty /> : <Frame />}
    </>
  );
}

export function App({ store }: { store: Store }) {
  return (
    <StoreContext.Provider value={store}>
      <Page />
    </StoreContext.Provider>
  );
}

/** The frame: list of runs on the left, tabs above, one view. */

import { useRef, useState } from "preact/hooks";

import { whyNoDevice } from "../../model/run";
import { supports } from "../../state/views";
import type { Store } from "../../state/store";
import { Answers } from "../answers/answers";
import { StoreContext, useStore } from "../shared/context";
import { Downloads } from "../shared/export";
import { Help, useKeys } from "./help";
import { RunList } from "./run-list";
import { Empty, Fault, Notices, Skeleton, WhyNoDevice } from "../shared/states";
import { Tips } from "../shared/tips";
import { Tabs, Toolbar } from "./toolbar";
import { View } from "./view";

function Frame() {
  const store = useStore();
  const help = useRef(() => {});
  useKeys(store, () => help.current());
  const [open, setOpen] = useState(false);
  const run = store.primary.value;
  return (
    <div class={open ? "frame open" : "frame"}>
      <button type="button" class="skip" onClick={() => document.querySelector("main")?.focus()}>
        Skip to the view
      </button>
      <RunList />
      <main tabIndex={-1}>
        <h1 class="unseen">Memory{run ? ` of ${run.run}` : ""}</h1>
        <header class="bar">
          <button type="button" class="runs-button" aria-expanded={open} onClick={() => setOpen(!open)}>
            Runs ({store.selected.value.length})
          </button>
          <Tabs />
          <span class="bar-end">
            {run && !supports(store.choices.value.view, "pair") && (
              <span class="bar-run" title={run.run}>
                {run.run}
              </span>
            )}
            <Downloads />
            <Help open={help} />
          </span>
        </header>
        <Toolbar />
        {run && <WhyNoDevice run={run} />}
        {run && whyNoDevice(run).length === 0 && <Answers run={run} />}
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

/** The list of runs: a box plots a run, a click on its name selects it for the breakdown. */

import { formatBytes, plural } from "../../lib/bytes";
import { RUN_SORTS, STATUS_LABELS, peakOf, runFacts, sortedRuns, type RunInfo } from "../../model/run";
import { showRun, toggleRun } from "../../state/runs";
import { runColour } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";

function RunRow({ run }: { run: RunInfo }) {
  const store = useStore();
  const checked = store.selected.value.some(({ run: name }) => name === run.run);
  const primary = store.primary.value?.run === run.run;
  const colour = runColour(store.colours.value.get(run.run) ?? 0, schemeOf(store));
  const peak = peakOf(run);
  return (
    <li class={primary ? "run primary" : "run"} title={runFacts(run).join("\n")}>
      <input
        type="checkbox"
        checked={checked}
        aria-label={`Plot ${run.run}`}
        title="Check to plot the run; click its name for the breakdown"
        style={{ accentColor: colour }}
        onChange={() => toggleRun(store, run.run)}
      />
      <button type="button" class="run-name" aria-pressed={primary} onClick={() => showRun(store, run.run)}>
        <span class="dot" style={{ background: colour }} />
        <span class="name">{run.run}</span>
        <span class="run-facts">
          {STATUS_LABELS[run.status] !== "" && (
            <span class={`run-status ${run.status}`} data-status={run.status}>
              {STATUS_LABELS[run.status]}
            </span>
          )}
          {peak !== null && <span class="run-peak">{formatBytes(peak)}</span>}
        </span>
        {run.damage.length > 0 && (
          <span class="flag" role="img" aria-label="some data could not be read" title="Some data could not be read">
            !
          </span>
        )}
      </button>
    </li>
  );
}

export function RunList() {
  const store = useStore();
  const { fault } = store.filter.value;
  const all = store.runs.value;
  const sort = store.choices.value.runSort;
  const shown = sortedRuns(
    all.filter(({ run }) => store.filter.value.test(run)),
    sort,
  );
  return (
    <nav class="runs" aria-label="Runs">
      <input
        type="search"
        class="filter"
        placeholder="Filter"
        title="Regular expression"
        aria-label="Filter runs by regular expression"
        value={store.choices.value.filter}
        onInput={(event) => store.choose({ filter: event.currentTarget.value })}
      />
      {fault && (
        <p class="small warn" role="status">
          {fault}
        </p>
      )}
      {all.length > 1 && (
        <label class="select run-sort">
          <span class="unseen">sort by</span>
          <select
            value={sort}
            onChange={(event) => store.choose({ runSort: RUN_SORTS.find((one) => one === event.currentTarget.value) ?? "status" })}
          >
            {RUN_SORTS.map((one) => (
              <option key={one} value={one}>
                by {one}
              </option>
            ))}
          </select>
        </label>
      )}
      <ul>
        {shown.map((run) => (
          <RunRow key={run.run} run={run} />
        ))}
      </ul>
      {shown.length < all.length && (
        <p class="small">
          {shown.length} of {plural(all.length, "run")} listed
        </p>
      )}
    </nav>
  );
}

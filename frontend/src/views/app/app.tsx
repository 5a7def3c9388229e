/** The frame: list of runs on the left, tabs above, one view. */

import { useRef, useState, useEffect } from "preact/hooks";

import { formatBytes, plural, unbroken } from "../../lib/bytes";
import { STATUS_WORDS, answerTip } from "../../model/answer";
import {
  RUN_COLUMNS,
  STATUS_LABELS,
  columnOf,
  culpritOf,
  keptOrder,
  peakOf,
  runFacts,
  sortedRuns,
  whyNoDevice,
  type RunColumn,
  type RunSort,
} from "../../model/run";
import { showRun, toggleRun } from "../../state/runs";
import { CLEARED_IN_ORDER, cleared, type Store } from "../../state/store";
import { runColour } from "../../theme/palette";
import { StoreContext, useStore, choicesFor, useFetched } from "../shared/context";
import { goToSearch } from "../shared/controls";
import { Downloads } from "../shared/export";
import { SortedColumn } from "../shared/long-table";
import { followPrinting, printViews } from "../shared/print";
import { Await, Empty, Notices, WhyNoDevice } from "../shared/states";
import { Tips } from "../shared/tips";
import { Tabs, Toolbar, tabsOf } from "./toolbar";
import { View } from "./view";
import {
  ANSWER_NAMES,
  type Answer,
  type AnswerName,
  type AnswerStatus,
  type RunInfo,
} from "../../schema";

/**
 * Told apart by shape as well as by colour: a tick, an exclamation mark, a cross, an i, a question
 * mark.
 */
const ICONS: Record<AnswerStatus, string> = {
  ok: "M3 8.5 6.5 12 13 4.5",
  warning: "M8 3v6.5M8 12v1",
  failed: "M4 4 12 12M12 4 4 12",
  fact: "M8 7v5M8 4v.6",
  unknown: "M5.5 6a2.5 2.5 0 1 1 3.8 2.1C8.4 8.7 8 9.2 8 10M8 12.3v.9",
};

const Status = ({ status }: { status: AnswerStatus }) => (
  <span class="tile-status">
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={ICONS[status]} />
    </svg>
    <span class="unseen">{STATUS_WORDS[status]}</span>
  </span>
);

function Tile({ answer, show }: { answer: Answer; show: () => void }) {
  const { name, question, sentence, status, figures } = answer;
  const tip = answerTip(answer);
  return (
    <button
      type="button"
      class={`tile ${status}`}
      data-answer={name}
      data-status={status}
      data-figures={JSON.stringify(figures)}
      data-tip={tip === "" ? undefined : tip}
      onClick={show}
    >
      <Status status={status} />
      <span class="tile-sentence">
        <span class="tile-question">{question}</span> {unbroken(sentence)}
      </span>
    </button>
  );
}

const Blank = ({ name, why }: { name: AnswerName; why: string | null }) => (
  <span key={name} class="tile blank" role={why === null ? undefined : "status"}>
    {name === "fits" && why !== null && <span class="tile-sentence">{why}</span>}
  </span>
);

function Answers({ run }: { run: RunInfo }) {
  const store = useStore();
  const { value, error, loading } = useFetched(
    store.fetched.answers,
    run.status === "reading" ? null : [run, store.device.value, store.phase.value],
  );
  return (
    <section class="answers" aria-label="Answers" data-testid="answers" aria-busy={loading}>
      {value === null
        ? ANSWER_NAMES.map((name) => <Blank key={name} name={name} why={error} />)
        : value.answers.map((answer) => (
            <Tile
              key={answer.name}
              answer={answer}
              show={() => store.choose(choicesFor(answer.evidence, run))}
            />
          ))}
    </section>
  );
}

const DIGITS = 9;

const keysOf = (tabs: number): readonly (readonly [string, string])[] => [
  ["?", "show this list"],
  ["/", "search the view's list, otherwise the runs"],
  [`1 … ${Math.min(tabs, DIGITS)}`, "open a tab, in tab order"],
  ["Esc", `leave the page of a layer; otherwise clear, in this order: ${CLEARED_IN_ORDER}`],
  ["Tab", "next element; the list of tabs is one, with ← and →"],
  [
    "← →",
    "previous or next step in a chart, moment in a step timeline, chunk in a memory map; ten at once with Shift",
  ],
  ["Home, End", "first or last of them"],
  [
    "Enter",
    "select the step in a chart, the moment in a step timeline, or a category in a table; zoom to the chunk in a memory map",
  ],
  ["↑ ↓", "previous or next row of a table, with its explanation"],
  ["drag", "zoom to a span of a chart; double-click for all"],
  [
    "Ctrl or ⌘ with a drag",
    "select a span of a step timeline; by keyboard, M marks one end and then the other",
  ],
  ["W S or + −", "zoom in or out around the cursor"],
  ["A D", "pan left or right"],
  ["0", "show everything"],
];

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches("input:not([type='checkbox']), select, textarea");

function useKeys(store: Store, help: () => void): void {
  useEffect(() => {
    const clear = () => {
      store.cursor.value = null;
      store.momentCursor.value = null;
      store.choose(cleared(store.choices.peek()));
    };
    const listener = (event: KeyboardEvent) => {
      // Of what is all here, as in a report.
      if (store.recordedOnly && event.key === "p" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        void printViews(store);
      }
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) clear();
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const place = /^[1-9]$/.test(event.key) ? tabsOf(store)[Number(event.key) - 1] : undefined;
      if (place) store.choose({ view: place });
      else if (event.key === "/") goToSearch(store);
      else if (event.key === "?") help();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", listener);
    return () => document.removeEventListener("keydown", listener);
  }, [store]);
}

/**
 * The dialog with the shortcuts, and the button that opens it; sets `open.current` to a function
 * that opens it.
 */
function Help({ open }: { open: { current: () => void } }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const keys = keysOf(tabsOf(useStore()).length);
  open.current = () => dialog.current?.showModal();
  return (
    <>
      <button
        type="button"
        class="help-button"
        aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"
        onClick={() => open.current()}
      >
        ?
      </button>
      <dialog
        ref={dialog}
        class="help"
        aria-label="Keyboard shortcuts"
        onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      >
        <form method="dialog">
          <h2>Keyboard shortcuts</h2>
          <dl>
            {keys.map(([key, what]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <button type="submit" class="quiet">
            Close
          </button>
        </form>
      </dialog>
    </>
  );
}

function RunRow({ run }: { run: RunInfo }) {
  const store = useStore();
  const checked = store.selected.value.some(({ run: name }) => name === run.run);
  const primary = store.primary.value?.run === run.run;
  const colour = runColour(store.colours.value.get(run.run) ?? 0);
  const [peak, culprit] = [peakOf(run), culpritOf(run)];
  return (
    <tr class={primary ? "run primary" : "run"} title={runFacts(run).join("\n")}>
      <td>
        <input
          type="checkbox"
          checked={checked}
          aria-label={`Plot ${run.run}`}
          title="Check to plot the run; click its name for the breakdown"
          style={{ accentColor: colour }}
          onChange={() => toggleRun(store, run.run)}
        />
      </td>
      <th scope="row">
        <button
          type="button"
          class="run-name"
          aria-pressed={primary}
          onClick={() => showRun(store, run.run)}
        >
          <span class="dot" style={{ background: colour }} />
          <span class="name">
            {run.run
              .split(/(?<=[_/.-])/)
              .flatMap((part, index) => [index > 0 && <wbr key={index} />, part])}
          </span>
          {run.damage.length > 0 && (
            <span
              class="flag"
              role="img"
              aria-label="some data could not be read"
              title="Some data could not be read"
            >
              !
            </span>
          )}
        </button>
      </th>
      <td class="run-state">
        {STATUS_LABELS[run.status] !== "" && (
          <span class={`run-status ${run.status}`} data-status={run.status}>
            {STATUS_LABELS[run.status]}
          </span>
        )}
        {culprit !== null && <span class="culprit">{unbroken(culprit)}</span>}
      </td>
      <td class="run-peak">{peak !== null && formatBytes(peak)}</td>
    </tr>
  );
}

const COLUMN_HINTS: Record<RunColumn, string> = {
  name: "Sort by name",
  status: "Sort by what is wrong, the worst first",
  peak: "Sort by peak, the highest first",
};

/**
 * The runs in the chosen order. A row keeps its place while data arrives: only a click on a column
 * sorts all rows again.
 */
function useKeptOrder(runs: readonly RunInfo[], sort: RunSort): RunInfo[] {
  const kept = useRef<{ sort: RunSort; read: string[] }>({ sort, read: [] });
  const now = sortedRuns(runs, sort);
  const names = keptOrder(
    kept.current.sort === sort ? kept.current.read : [],
    now.map(({ run }) => run),
  );
  const byName = new Map(now.map((run) => [run.run, run]));
  const shown = names.flatMap((name) => byName.get(name) ?? []);
  kept.current = {
    sort,
    read: shown.filter(({ status }) => status !== "reading").map(({ run }) => run),
  };
  return shown;
}

function RunList() {
  const store = useStore();
  const { fault } = store.filter.value;
  const all = store.runs.value;
  const sort = store.choices.value.runSort;
  const shown = useKeptOrder(all, sort).filter(({ run }) => store.filter.value.test(run));
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
      <table class="run-table" aria-label="Runs">
        <thead>
          <tr>
            <td />
            {RUN_COLUMNS.map((column) => (
              <SortedColumn
                key={column}
                name={column}
                label={column === "name" ? "run" : column}
                hint={COLUMN_HINTS[column]}
                isNumber={column === "peak"}
                sorted={columnOf(sort) === column}
                ascending={(column === "peak") === sort.startsWith("-")}
                choose={() => store.choose({ runSort: sort === column ? `-${column}` : column })}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((run) => (
            <RunRow key={run.run} run={run} />
          ))}
        </tbody>
      </table>
      {shown.length < all.length && (
        <p class="small">
          {shown.length} of {plural(all.length, "run")} listed
        </p>
      )}
    </nav>
  );
}

function Frame() {
  const store = useStore();
  const help = useRef(() => {});
  useKeys(store, () => help.current());
  useEffect(followPrinting, []);
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
          <button
            type="button"
            class="runs-button"
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          >
            Runs ({store.selected.value.length})
          </button>
          <Tabs />
          <span class="bar-end">
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

const Page = () => (
  <Await loaded={useStore().answer.value}>
    {({ runs }) => (runs.length === 0 ? <Empty /> : <Frame />)}
  </Await>
);

export const App = ({ store }: { store: Store }) => (
  <StoreContext.Provider value={store}>
    <Page />
  </StoreContext.Provider>
);

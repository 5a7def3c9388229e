/** Addresses, and what a user does there. */

import { IN_STEPS } from "./cases-in-steps";
import { OF_RUNS } from "./cases-of-runs";
import { user, type Case } from "./harness";

const { click, press, enter, point, drag } = user;

/** The whole page, and what changes in it. */
const FRAME: Case[] = [
  ["frame: all runs, the first one shown", "samples", "", { whole: true }],
  [
    "frame: two runs checked",
    "samples",
    "run=frozen&with=growing",
    {
      whole: true,
      since: "run=frozen",
      shows: [
        '.swatch.plain style="--fill: #f9ab00;" | <label: growing>',
        "stroke #f9ab00 1.75 round butt: 480 points, 76 87.5 to 936 151, f3d19e",
        'tr data-figure="run:growing" data-bytes="173264640" data-tip="165 MiB |',
        'tr data-figure="headroom" data-bytes="900477184" data-tip="859',
      ],
    },
  ],
  [
    "frame: runs filtered and sorted by peak",
    "samples",
    "run=frozen&filter=r.*n&runs=peak",
    {
      whole: true,
      since: "run=frozen",
      shows: [
        'tr .run title="growing | 240 steps | CPU:0 peak 166 MiB"',
        '.run-state: .run-status.growing data-status="growing": grows',
        'tr .run title="all_trainable | 240 steps | CPU:0 peak 286 MiB"',
        'button .run-name aria-pressed="false": .dot style="background: #',
      ],
    },
  ],
  [
    "frame: a filter that is no expression",
    "samples",
    "run=frozen&filter=(",
    {
      whole: true,
      since: "run=frozen",
      shows: [
        'p .small.warn role="status": Invalid regular expression: showing all.',
        'input .filter placeholder="Filter" title="Regular expression" aria-label="Fil',
      ],
    },
  ],
  [
    "frame: no run checked",
    "samples",
    "with=none",
    {
      whole: true,
      since: "",
      shows: [
        "h1 .unseen: … Memory of died_fragmentation → Memory",
        ".nothing: h2: No run is shown | p: Check a run in the list to plot it.",
        '="Check to plot … checked=true → checked=false',
      ],
    },
  ],
  [
    "frame: a run is checked, then its name clicked",
    "samples",
    "run=frozen",
    {
      whole: true,
      acts: [click("input[aria-label='Plot growing']"), click(".run-name", "growing")],
    },
  ],
  [
    "frame: list of runs opened, help opened",
    "samples",
    "run=frozen",
    {
      whole: true,
      acts: [click(".runs-button"), press("main", "?")],
      shows: [
        'dialog .help aria-label="Keyboard shortcuts"…  →  open=""',
        'button .runs-button aria-expanded="… false → true',
        'main tabindex="-1"…  →  focused',
        "… .frame → .frame.open",
      ],
    },
  ],
  [
    "frame: a digit opens a tab, a slash its search",
    "samples",
    "run=frozen",
    { whole: true, since: "view=layers&run=frozen", acts: [press("main", "2", "/")] },
  ],
  [
    "frame: tip of a figure by the keyboard",
    "samples",
    "run=frozen",
    {
      acts: [press("tr[data-tip]", "ArrowDown", "ArrowDown", "End", "ArrowUp", "Home")],
      shows: [
        "fill pattern … cfb2: → e300:",
        "fill pattern … e03a: → 08aa:",
        '.tip id="tip" role="tooltip" style="transform: translate(4px, 326px) translate',
        'ta-bytes="3146752" data-tip="3 → .focused.choosable data-figure="unattributed"',
      ],
    },
  ],
  [
    "frame: tip of a figure under the pointer",
    "samples",
    "run=frozen",
    {
      acts: [point("tr[data-tip]", "pointerover", 5, 5), user.expect(".tip")],
      shows: ['buted" data-bytes="3146752" …  →  aria-describedby="tip"'],
    },
  ],
  [
    "frame: an answer is opened",
    "samples",
    "run=frozen",
    { whole: true, acts: [click("[data-answer='changed']")] },
  ],
  [
    "frame: answer of growth is opened",
    "samples",
    "run=growing",
    { whole: true, acts: [click("[data-answer='growing']")] },
  ],
  [
    "frame: answer of fragmentation is opened",
    "samples",
    "run=died_fragmentation",
    { whole: true, acts: [click("[data-answer='fragmented']")] },
  ],
  [
    "frame: run that grows",
    "samples",
    "run=growing",
    { whole: true, since: "run=frozen", shows: ['lo…" style="acce… checked=true → checked=false'] },
  ],
  ["frame: run with every request", "samples", "run=requests", { whole: true }],
  [
    "frame: run that failed in a task",
    "tasks",
    "run=failed",
    {
      whole: true,
      shows: [
        'p: button .link title="Show all layers": conv1 86.3 MiB (93 %)',
        'tr .run title="unfrozen | 60 steps | CPU:0 peak 404 MiB"',
        'button .run-name aria-pressed="true": .dot style="background: #425066;" | <name:',
        'button .run-name aria-pressed="false": .dot style="background: #12b5cb;" | <name',
      ],
    },
  ],
  ["frame: run whose model was unfrozen", "tasks", "run=unfrozen", { whole: true }],
  ["frame: recorded run that failed", "recorded", "run=out_of_memory", { whole: true }],
  [
    "frame: recorded run",
    "recorded",
    "run=finished",
    {
      whole: true,
      shows: [
        '.figure data-figure="total:model/head" data-bytes="4002000": 3.8',
        'button .tab aria-pressed="false" tabindex="-1": Recorded activations',
      ],
    },
  ],
  ["frame: cluster", "devices", "", { whole: true }],
];

const OVERVIEW: Case[] = [
  [
    "overview: the shown run unchecked",
    "samples",
    "run=frozen&with=frozen&with=growing",
    {
      whole: true,
      acts: [click("[aria-label='Plot frozen']")],
      shows: ['text "100 MiB" #5f6368 12px right middle: 66 155'],
    },
  ],
  [
    "overview: another run unchecked",
    "samples",
    "run=frozen&with=frozen&with=growing",
    {
      whole: true,
      acts: [click("[aria-label='Plot growing']")],
      shows: [
        'plo…" style="acc… checked=true → checked=false',
        'button .runs-button aria-expanded="false": Runs … (2) → (1)',
      ],
    },
  ],
  [
    "overview: what is no step entered",
    "samples",
    "run=frozen",
    {
      acts: [
        enter("[aria-label='Selected step']", ""),
        enter("[aria-label='Selected step']", "-5"),
        enter("[aria-label='Selected step']", "1.5"),
      ],
      shows: [],
    },
  ],
  [
    "overview: category hovered",
    "samples",
    "run=frozen",
    {
      acts: [point("tr.choosable", "mouseenter", 5, 5)],
      shows: ["tr … .choosable → .focused.choosable"],
    },
  ],
  [
    "overview: category chosen by a key",
    "samples",
    "run=frozen",
    { acts: [press("tr.choosable", "ArrowDown", "Enter")] },
  ],
  ["overview: bytes made exact", "samples", "run=frozen", { acts: [click(".unit")] }],
  [
    "overview: timeline opened",
    "samples",
    "run=frozen&step=100",
    {
      since: "view=step&run=frozen",
      acts: [click(".timeline-link")],
      shows: [
        'h2 data-moment="… 31" data-step="200 → 23" data-step="80',
        '.body data-step="… 200" data-moments="64 → 80" data-moments="48',
      ],
    },
  ],
  [
    "overview: layer opened",
    "samples",
    "run=frozen",
    {
      acts: [click(".leads")],
      shows: [
        'aside .panel aria-label="Figures of the layer at one step"',
        '.swatch.plain style="--fill: #839a6d;" | <label: workspace>',
        'h2 title="vgg/block1_conv2": block1_conv2',
        '.u-axis style="left: 0px; width: 76px; top: 34px; height: 256px;"',
      ],
    },
  ],

  ["overview: growing run", "samples", "run=growing"],
  [
    "overview: validation",
    "samples",
    "run=frozen&phase=validation",
    {
      since: "run=frozen",
      shows: [
        "clip … 7 points, 87 54 to 918 54, 2f1f52ce →",
        'es="1920… 11 % | Step 200. Me… → 16 % | Step 239. Pe…',
        "d | .legend-item: i .key.light → .key.light",
        'ed="false" title="Show exact b → 239": Step 239 | button .unit aria-pressed="f',
      ],
    },
  ],
  [
    "overview: attempt of two",
    "samples",
    "run=restarted&session=00000000000000000000000013",
    {
      since: "run=restarted",
      shows: [
        'a-step="… 3" data-breakdown="3 → " data-breakdown="',
        '.fault role="alert": p: Not in this report: it holds only the data selected w',
      ],
    },
  ],
  ["overview: run with two attempts", "samples", "run=restarted", { whole: true }],
  [
    "overview: step selected",
    "samples",
    "run=frozen&step=100",
    {
      since: "run=frozen",
      shows: [
        '.figure aria-label="… 3 MiB": 3.0 → 2.9 MiB": 2.9',
        '.figure aria-label="… 66.1 MiB": 66.1 → 45.8 MiB": 45.8',
      ],
    },
  ],
  [
    "overview: traced step selected",
    "samples",
    "run=frozen&step=41",
    {
      since: "run=frozen",
      shows: [
        'ing" data-bytes="111… 200. Me… → 41. Mea…',
        'tensors" data-bytes=… 200. Me… → 41. Mea…',
        '_state" data-bytes="… 200. Me… → 41. Mea…',
        '7472" da… 44 % | Step 200. Me… → 63 % | Step 41. Mea…',
      ],
    },
  ],
  [
    "overview: first step selected",
    "samples",
    "run=frozen&step=0",
    {
      since: "run=frozen",
      shows: [
        'ing" data-bytes="111… 200. Me… → 0. Peak…',
        'tensors" data-bytes=… 200. Me… → 0. Peak…',
        '_state" data-bytes="… 200. Me… → 0. Peak…',
        '7472" da… 44 % | Step 200. Me… → 63 % | Step 0. Peak…',
      ],
    },
  ],
  [
    "overview: category selected",
    "samples",
    "run=frozen&category=activations",
    {
      since: "run=frozen",
      shows: ['a-bytes="6292736" data-tip="6  → .focused.choosable data-figure="activations"'],
    },
  ],
  ["overview: by time", "samples", "run=frozen&x=relative", { since: "run=frozen" }],
  [
    "overview: by time of day",
    "samples",
    "run=frozen&x=wall",
    {
      since: "run=frozen",
      shows: [
        'text "2026-09-21" #5f6368 12px center top: 135 304',
        "clip 7 points, 84.5 54 to 921.5 54, 88b02a0f",
        'text "0" #5f6368 12px right middle: 66 276',
        "stroke #b94f06 1.25 round butt: M 655.5 54 L 655.5 276",
      ],
    },
  ],
  [
    "overview: zoomed",
    "samples",
    "run=frozen&zoom=150-180",
    {
      since: "run=frozen",
      shows: [
        "s, … 87 54 to 918 54, 2f1f52ce → -4002 54 to 2434 54, f7d33a28",
        'transform: translate(794.46px, → .handle.beyond style="transform: translate(93',
      ],
    },
  ],
  [
    "overview: exact bytes",
    "samples",
    "run=frozen&exact=1",
    { since: "run=frozen", shows: ["thead: tr: count | shape | dtype | size, … KiB → B"] },
  ],
  [
    "overview: two runs by time",
    "samples",
    "run=frozen&with=growing&x=relative",
    {
      since: "run=frozen",
      shows: [
        "clip 7 points, 84.5 54 to 921.5 54, 2b6e1660",
        "stroke #b94f06 1.25 round butt: M 655.5 54 L 655.5 290",
      ],
    },
  ],
  [
    "overview: three runs, one without the phase",
    "samples",
    "run=frozen&with=requests&with=all_trainable&phase=validation",
    {
      shows: [
        '.swatch.plain style="--fill: #425066;" | <label: all_trainable>',
        "h3: Measured peak of other runs",
        "section .others",
        "p .legend: .legend-item: i .key.line | peak | .legend-item: i .key.ligh",
      ],
    },
  ],
  ["overview: narrow", "samples", "run=frozen", { width: 420 }],
  [
    "overview: keys over the chart",
    "samples",
    "run=frozen",
    {
      acts: [press(".plot", "End", "ArrowLeft", "Shift+ArrowLeft", "ArrowRight")],
      shows: [
        '-bytes="75497472" da… 200. Me… → 229. Pe…',
        'le" data-bytes="1920… 200. Me… → 229. Pe…',
        'data-bytes="1874150… 200. Me… → 229. Pe…',
        '="96030… 5.5 % | Step 200. Me… → 5.6 % | Step 229. Pe…',
      ],
    },
  ],
  [
    "overview: key past the last step",
    "samples",
    "run=frozen",
    {
      acts: [press(".plot", "End", "ArrowRight")],
      shows: [
        'ation_gradients" dat… 200. Me… → 239. Pe…',
        's" data-bytes="96030… 200. Me… → 239. Pe…',
        'ta-bytes="6292736" d… 200. Me… → 239. Pe…',
        's" data-bytes="15728… 200. Me… → 239. Pe…',
      ],
    },
  ],
  [
    "overview: step selected and zoomed by keys",
    "samples",
    "run=frozen",
    { acts: [press(".plot", "Home", "Shift+ArrowRight", "Enter", "+", "d", "+", "a", "-")] },
  ],
  [
    "overview: zoom undone by a key",
    "samples",
    "run=frozen&zoom=150-180",
    {
      acts: [press(".plot", "0")],
      shows: [
        'a-label="Memory of frozen on…  →  focused',
        "-4002 54 to 2434 54, f7d33a28 → 87 54 to 918 54, 2f1f52ce",
        'e="transform: translate(936px, → .handle style="transform: translate(794.46px,',
        "85.5 180 to 2573 290, 8df758cd → 76 180 to 936 290, 3bb84c4f",
      ],
    },
  ],
  [
    "overview: pointer over the chart",
    "samples",
    "run=frozen",
    { acts: [point(".u-over", "mousemove", 400, 150)] },
  ],
  [
    "overview: pointer at a step with other largest layers",
    "tasks",
    "run=unfrozen",
    {
      acts: [point(".u-over", "mousemove", 60, 150)],
      shows: [
        '→ model/head" data-tip="model/head | total: 2 KiB, total of all categories',
        "Largest … layers → layers | <small: step 3>",
      ],
    },
  ],
  [
    "overview: step clicked",
    "samples",
    "run=frozen",
    {
      acts: [
        point(".u-over", "mousemove", 300, 150),
        point(".u-over", "click", 300, 150, { detail: 1 }),
      ],
      shows: [
        'bytes="75497472" data-tip="72  → .focused.choosable data-figure="workspace" da',
        '.figure aria-label="… 3 MiB": 3.0 → 3.5 MiB": 3.5',
      ],
    },
  ],
  [
    "overview: dragged over the chart",
    "samples",
    "run=frozen",
    {
      acts: [drag(".u-over", [200, 100], [400, 100])],
      shows: [
        'ta-bytes="3146752" data-tip="3 → .focused.choosable data-figure="unattributed"',
        'tr data-layer="vgg/block1_conv2" data-tip="vgg/block1_conv2 |… 200 → 41',
      ],
    },
  ],
  [
    "overview: rows unfolded",
    "samples",
    "run=frozen",
    {
      acts: [click(".folded-rows button")],
      shows: ['tr .choosable … hidden="" data-figure= → data-figure='],
    },
  ],
  [
    "overview: category clicked, then cleared",
    "samples",
    "run=frozen",
    { acts: [click("tr.choosable"), press("body", "Escape")], shows: [] },
  ],
  [
    "overview: category clicked",
    "samples",
    "run=frozen",
    {
      acts: [click("tr.choosable")],
      shows: ['ta-bytes="3146752" data-tip="3 → .focused.choosable data-figure="unattributed"'],
    },
  ],
  [
    "overview: mark clicked",
    "samples",
    "run=frozen",
    {
      acts: [click(".mark")],
      shows: [
        '7472" da… 44 % | Step 200. Me… → 43 % | Step 160. Pe…',
        'tr .choosable data-figure="optimizer_state" data-bytes="31496920" data-t',
        'tr .zero.choosable hidden="" data-figure="other_state" data-bytes="0" da',
        'tr .zero.choosable hidden="" data-figure="held_tensors" data-bytes="0" d',
      ],
    },
  ],
  [
    "overview: mark of a failure clicked",
    "samples",
    "run=died_fragmentation",
    {
      acts: [click(".mark.failure")],
      shows: ['.segments.reserved role="group" aria-label="x-axis": button aria-pressed="tr'],
    },
  ],
  ["overview: finding clicked", "samples", "run=growing", { acts: [click(".findings button")] }],
  [
    "overview: next and previous traced step",
    "samples",
    "run=frozen",
    {
      acts: [
        click("[aria-label='Next traced step']"),
        click("[aria-label='Previous traced step']"),
        click("[aria-label='Previous traced step']"),
      ],
      shows: [
        'ounding" data-bytes="111… 200. → 163.',
        'data-bytes="75497472" da… 200. → 163.',
        'ctivation_gradients" dat… 200. → 163.',
        'ients" data-bytes="96030… 200. → 163.',
      ],
    },
  ],
  [
    "overview: step entered",
    "samples",
    "run=frozen",
    {
      acts: [enter("[aria-label='Selected step']", "77")],
      shows: [
        '.figure aria-label="… 3 MiB": 3.0 → 3.6 MiB": 3.6',
        "summary: h3: Tensors by … holder → holder <small: step 41>",
      ],
    },
  ],
  [
    "overview: downloads",
    "samples",
    "run=requests",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "PNG")],
      shows: [
        "fill pattern 9706: 42 points, 76 65.5 to 936 290, 5d47c3bd",
        "fill pattern 35ae: 42 points, 76 65.5 to 936 290, 5d47c3bd",
        "fill pattern c0b8: 42 points, 76 71 to 936 290, 4bec3ba1",
        'text "10 MiB" #5f6368 12px right middle: 66 187',
      ],
    },
  ],
  [
    "overview: task that was unfrozen, step before",
    "tasks",
    "run=unfrozen&step=20",
    {
      since: "run=unfrozen",
      shows: [
        'tr data-figure="in_use_bytes" data-bytes="314572800" data-tip=… 33 → 20',
        'ing" data-bytes="512… 33. Mea… → 20. Pea…',
        'ts:trainable" data-b… 33. Mea… → 20. Pea…',
        "button .leads: … Adam replaced at step 30/model/head → head",
      ],
    },
  ],
  [
    "overview: small run",
    "recorded",
    "run=small",
    {
      shows: [
        'p: button .link title="Show all layers": head 4.0 MiB (50 %)',
        'h2: Step 59 ran out of memory in | button .link title="Open the layer": model/he',
        'tr .zero.choosable hidden="" data-figure="weights:trainable" data-bytes="0" data',
        'tr .choosable hidden="" data-figure="weights:frozen" data-bytes="3145628" data-t',
      ],
    },
  ],
  ["overview: device of a cluster", "devices", "device=worker_0%2FGPU%3A2", { since: "" }],
];

const LAYERS: Case[] = [
  ["layers", "samples", "view=layers&run=frozen"],
  ["layers: all columns", "samples", "view=layers&run=frozen&columns=1"],
  [
    "layers: layer selected",
    "samples",
    "view=layers&run=frozen&layer=vgg%2Fblock5_conv1",
    {
      since: "view=layers&run=frozen",
      shows: [
        'button role="treeitem" .cell aria-level="3" aria-selected="… false → true',
        "tr … data-layer= → .selected data-layer=",
      ],
    },
  ],
  [
    "layers: category selected",
    "samples",
    "view=layers&run=frozen&columns=1&category=weights",
    {
      since: "view=layers&run=frozen&columns=1",
      shows: ['button role="treeitem" … .cell → .cell.muted', "… .number → .number.chosen"],
    },
  ],
  [
    "layers: by type",
    "samples",
    "view=layers&run=frozen&columns=1&group=type",
    { since: "view=layers&run=frozen&columns=1" },
  ],
  [
    "layers: category of the bars selected",
    "samples",
    "view=layers&run=frozen&category=weights",
    {
      since: "view=layers&run=frozen",
      shows: ['button role="treeitem" … .cell.tensor → .cell.tensor.muted'],
    },
  ],
  [
    "layers: by block",
    "samples",
    "view=layers&run=frozen&group=block",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: by training",
    "samples",
    "view=layers&run=frozen&group=trainable",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: searched",
    "samples",
    "view=layers&run=frozen&search=block5",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: nothing found",
    "samples",
    "view=layers&run=frozen&search=zzz",
    {
      since: "view=layers&run=frozen",
      shows: [
        '.small role="status"…  → : 0 B of 165 MiB',
        '0" data-tip="0 B | total of all categories | traced at the peak of step 200": 0 B',
        'input .filter placeholder="Search (regex)" aria-label="Search lay…  → zzz',
        'tfoot: tr .totals data-group="total found": title="total found ": total fo',
      ],
    },
  ],
  [
    "layers: in the model's order",
    "samples",
    "view=layers&run=frozen&sort=model",
    {
      since: "view=layers&run=frozen",
      shows: [
        '.parts: role="img" aria-label="weights 1.1 MiB": i .fill.diago',
        '.parts: role="img" aria-label="weights 2.3 MiB": i .fill.diago',
      ],
    },
  ],
  [
    "layers: by path",
    "samples",
    "view=layers&run=frozen&sort=path",
    {
      since: "view=layers&run=frozen",
      shows: [
        'i .fill.plain style="--fill: #385db4; width: 0.86%;" data-fi',
        '.parts: role="img" aria-label="weights 289 KiB": i .fill.diago',
      ],
    },
  ],
  [
    "layers: by total",
    "samples",
    "view=layers&run=frozen&sort=total",
    { since: "view=layers&run=frozen", shows: [] },
  ],
  [
    "layers: exact bytes",
    "samples",
    "view=layers&run=frozen&columns=1&exact=1",
    { since: "view=layers&run=frozen&columns=1" },
  ],
  [
    "layers: narrow",
    "samples",
    "view=layers&run=frozen",
    {
      width: 260,
      shows: [
        "<cell-name: block5 … ><small.figure: 65.5 MiB> → >",
        'iagonal style="--fill: … #385… → #cf8002; width: 100%;',
        '" aria-selected="false… 716.81px; → 194.14px;',
      ],
    },
  ],
  [
    "layers: step without a trace",
    "samples",
    "view=layers&run=frozen&step=1",
    {
      since: "view=layers&run=frozen",
      shows: ['button aria-label="Next traced step" title="Next traced step: … 235 → 3'],
    },
  ],
  [
    "layers: another traced step",
    "samples",
    "view=layers&run=frozen&step=41",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: keys in the table",
    "samples",
    "view=layers&run=frozen",
    {
      acts: [press(".layer-scroll", "ArrowDown", "ArrowDown", "ArrowUp")],
      shows: ['.layer-scroll tabindex="0" role="region" aria-label="Layers"…  →  focused'],
    },
  ],
  [
    "layers: header clicked",
    "samples",
    "view=layers&run=frozen",
    { acts: [click("thead button")], shows: [] },
  ],
  [
    "layers: a block of the icicle clicked",
    "samples",
    "view=layers&run=frozen",
    {
      acts: [click(".cell:nth-child(2)")],
      shows: [
        "tr … data-layer= → .selected data-layer=",
        'role="img" aria-label="weights 9 … Mi… → MiB, activations 4 MiB',
        'i .fill.diagonal style="--fill: … #839… → #839a6d; width: 99.61%;',
      ],
    },
  ],
  ["layers: run with every request", "samples", "view=layers&run=requests"],
  ["layers: task that was unfrozen", "tasks", "view=layers&run=unfrozen"],
  [
    "layers: task before it was unfrozen",
    "tasks",
    "view=layers&run=unfrozen&step=10",
    { since: "view=layers&run=unfrozen" },
  ],
  ["layers: recorded failure", "recorded", "view=layers&run=out_of_memory&search=block1"],
  [
    "layers: validation",
    "samples",
    "view=layers&run=frozen&phase=validation",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: download",
    "samples",
    "view=layers&run=requests",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        ",,,,,,,0,0,49152,0,0,0,0,49152,0,0,0,0,0,0",
        'net/conv1,Dense,frozen,,90000,"(batch, 375000) float32",6000000,360000,0,6748672',
        'net/head,Dense,trainable,,40000,"(batch, 100) float32",1600,480000,0,643584,1600',
        'net/conv2,Dense,trainable,,500000,"(batch, 225000) float32",3600000,6000000,0,15',
      ],
    },
  ],
  ["layer", "samples", "view=layer&run=frozen&layer=vgg%2Fblock5_conv1"],
  [
    "layer: frozen",
    "samples",
    "view=layer&run=frozen&layer=block1_conv1",
    {
      shows: [
        'h2 title="block1_conv1": block1_conv1',
        "details .known: summary: How is this known? | section: h3: Formulas <small: step",
        'tr .choosable data-figure="workspace" data-bytes="37748736" data-tip="36 MiB | o',
        'tr .choosable data-figure="weights" data-bytes="7168" data-tip="7 KiB | layer va',
      ],
    },
  ],
  [
    "layer: step selected",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1&step=80",
    {
      since: "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
      shows: [
        '.figure aria-label="… 256 KiB": 0.25 → 0 B": 0',
        '.figure aria-label="… 4.5 MiB": 4.5 → 0 B": 0',
      ],
    },
  ],
  [
    "layer: category selected, by time",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1&category=weights&x=relative",
    {
      since: "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
      shows: [
        "0.5 225 to 982.5 290, 6c4e3109 → 2.5 225 to 987.5 290, a72b6537",
        "20.5 55 to 982.5 290, 1dca3c4b → 2.5 55 to 987.5 290, e9e56daf",
      ],
    },
  ],
  [
    "layer: keys",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
    {
      acts: [press(".plot", "ArrowRight", "ArrowRight")],
      shows: [
        'gradients" data-bytes="26… 200 → 235',
        'valuetext="step 200: 32.8 MiB" → 6" aria-valuetext="step 235: 32.8 MiB" focuse',
      ],
    },
  ],
  [
    "layer: of a run traced once",
    "samples",
    "view=layer&run=died_fragmentation&layer=vgg%2Fblock5_conv1",
    {
      shows: [
        "fill pattern d59b: 6 points, -325.5 29 to 1360.5 290, b2f49ac1",
        "fill pattern 3200: 6 points, -325.5 31 to 1360.5 290, 2bd235b3",
        "fill pattern ccbd: 6 points, -325.5 67 to 1360.5 290, b16aa625",
        "fill pattern 307c: 6 points, -325.5 29 to 1360.5 290, b2f49ac1",
      ],
    },
  ],
  [
    "layer: category hovered",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
    {
      acts: [point("tr.choosable", "mouseenter", 5, 5)],
      shows: ["tr … .choosable → .focused.choosable"],
    },
  ],
  [
    "layers: name of a row clicked",
    "samples",
    "view=layers&run=frozen",
    { acts: [click(".layer-name")], shows: ["button .quiet: ← All layers"] },
  ],
  [
    "layers: headers clicked twice",
    "samples",
    "view=layers&run=frozen&columns=1",
    { acts: [click("thead th.number button"), click("thead th.type button")] },
  ],
  [
    "layer: unknown",
    "samples",
    "view=layer&run=frozen&layer=nothing",
    { since: "view=layers&run=frozen", shows: [] },
  ],
];

const FROZEN: Case[] = [
  ["frozen: unfrozen at a step", "samples", "view=frozen&run=frozen"],
  ["frozen: all trainable", "samples", "view=frozen&run=all_trainable"],
  [
    "frozen: growing, by time",
    "samples",
    "view=frozen&run=growing&x=relative",
    {
      since: "view=frozen&run=growing",
      shows: [
        "oints, 76 241.5 to 9… a4e97f13 → 5c1eac59",
        "oints, 76 240.5 to 9… 1751cd23 → 690291d9",
      ],
    },
  ],
  [
    "frozen: step selected",
    "samples",
    "view=frozen&run=frozen&step=41",
    {
      since: "view=frozen&run=frozen",
      shows: ['| svg: path d="" | p… hidden=" → style="transform: translateX(148.71px);'],
    },
  ],
  [
    "frozen: side hovered",
    "samples",
    "view=frozen&run=frozen",
    {
      acts: [point("tr.choosable", "mouseenter", 5, 5)],
      shows: [
        "tr … .choosable → .focused.choosable",
        "fill pattern … 368c: → c27e:",
        "fill pattern … b7e1: → e9d9:",
        "fill pattern … 4745: → f27f:",
      ],
    },
  ],
  [
    "frozen: keys",
    "samples",
    "view=frozen&run=frozen",
    { acts: [press(".plot", "Home", "Shift+ArrowRight", "Enter")] },
  ],
  [
    "frozen: task that was unfrozen",
    "tasks",
    "view=frozen&run=unfrozen",
    {
      shows: [
        'ul .findings aria-label="Cost of frozen and trainable layers" data-step="33": li',
        'tr .choosable data-figure="trainable:weights" data-bytes="2000" data-tip="2 KiB',
        'tr .choosable data-figure="other:activations" data-bytes="242220544" data-tip="2',
        'tr .choosable data-figure="other:optimizer_state" data-bytes="177209344" data-ti',
      ],
    },
  ],
  [
    "frozen: change clicked",
    "tasks",
    "view=frozen&run=unfrozen",
    {
      acts: [click("[data-testid='changes'] button")],
      shows: [
        'tr .strong data-figure="peak_bytes" data-bytes="423436496" data… 33 → 30',
        'tr data-figure="in_use_bytes" data-bytes="314572800" data-tip="… 33 → 30',
        'unattributed" data-b… 33. Mea… → 30. Pea…',
        's" data-bytes="24222… 33. Mea… → 30. Pea…',
      ],
    },
  ],
  [
    "frozen: recorded",
    "recorded",
    "view=frozen&run=finished",
    {
      shows: [
        "li: <sentence: At step 41, trainable layers use 3.8 MiB: 3.8 MiB of weights.>",
        "li: <sentence: From step 0: 1 frozen layer with 3.8 MiB of weights, 1 trainable",
        'tr .strong.zero data-figure="frozen" data-bytes="0"',
      ],
    },
  ],
];

export const CASES: Case[] = [...FRAME, ...OVERVIEW, ...LAYERS, ...FROZEN, ...IN_STEPS, ...OF_RUNS];

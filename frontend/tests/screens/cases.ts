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
    { whole: true, since: "run=frozen" },
  ],
  [
    "frame: runs filtered and sorted by peak",
    "samples",
    "run=frozen&filter=r.*n&runs=peak",
    { whole: true, since: "run=frozen" },
  ],
  [
    "frame: a filter that is no expression",
    "samples",
    "run=frozen&filter=(",
    { whole: true, since: "run=frozen" },
  ],
  ["frame: no run checked", "samples", "with=none", { whole: true, since: "" }],
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
    { whole: true, acts: [click(".runs-button"), press("main", "?")] },
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
    { acts: [press("tr[data-tip]", "ArrowDown", "ArrowDown", "End", "ArrowUp", "Home")] },
  ],
  [
    "frame: tip of a figure under the pointer",
    "samples",
    "run=frozen",
    { acts: [point("tr[data-tip]", "pointerover", 5, 5), user.expect(".tip")] },
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
  ["frame: run that grows", "samples", "run=growing", { whole: true, since: "run=frozen" }],
  ["frame: run with every request", "samples", "run=requests", { whole: true }],
  ["frame: run that failed in a task", "tasks", "run=failed", { whole: true }],
  ["frame: run whose model was unfrozen", "tasks", "run=unfrozen", { whole: true }],
  ["frame: recorded run that failed", "recorded", "run=out_of_memory", { whole: true }],
  ["frame: recorded run", "recorded", "run=finished", { whole: true }],
  ["frame: cluster", "devices", "", { whole: true }],
];

const OVERVIEW: Case[] = [
  [
    "overview: the shown run unchecked",
    "samples",
    "run=frozen&with=frozen&with=growing",
    { whole: true, acts: [click("[aria-label='Plot frozen']")] },
  ],
  [
    "overview: another run unchecked",
    "samples",
    "run=frozen&with=frozen&with=growing",
    { whole: true, acts: [click("[aria-label='Plot growing']")] },
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
    },
  ],
  [
    "overview: category hovered",
    "samples",
    "run=frozen",
    { acts: [point("tr.choosable", "mouseenter", 5, 5)] },
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
    { since: "view=step&run=frozen", acts: [click(".timeline-link")] },
  ],
  ["overview: layer opened", "samples", "run=frozen", { acts: [click(".leads")] }],

  ["overview: growing run", "samples", "run=growing"],
  ["overview: validation", "samples", "run=frozen&phase=validation", { since: "run=frozen" }],
  [
    "overview: attempt of two",
    "samples",
    "run=restarted&session=00000000000000000000000013",
    { since: "run=restarted" },
  ],
  ["overview: run with two attempts", "samples", "run=restarted", { whole: true }],
  ["overview: step selected", "samples", "run=frozen&step=100", { since: "run=frozen" }],
  ["overview: traced step selected", "samples", "run=frozen&step=41", { since: "run=frozen" }],
  ["overview: first step selected", "samples", "run=frozen&step=0", { since: "run=frozen" }],
  [
    "overview: category selected",
    "samples",
    "run=frozen&category=activations",
    { since: "run=frozen" },
  ],
  ["overview: by time", "samples", "run=frozen&x=relative", { since: "run=frozen" }],
  ["overview: by time of day", "samples", "run=frozen&x=wall", { since: "run=frozen" }],
  ["overview: zoomed", "samples", "run=frozen&zoom=150-180", { since: "run=frozen" }],
  ["overview: exact bytes", "samples", "run=frozen&exact=1", { since: "run=frozen" }],
  [
    "overview: two runs by time",
    "samples",
    "run=frozen&with=growing&x=relative",
    { since: "run=frozen" },
  ],
  [
    "overview: three runs, one without the phase",
    "samples",
    "run=frozen&with=requests&with=all_trainable&phase=validation",
  ],
  ["overview: narrow", "samples", "run=frozen", { width: 420 }],
  [
    "overview: keys over the chart",
    "samples",
    "run=frozen",
    { acts: [press(".plot", "End", "ArrowLeft", "Shift+ArrowLeft", "ArrowRight")] },
  ],
  [
    "overview: key past the last step",
    "samples",
    "run=frozen",
    { acts: [press(".plot", "End", "ArrowRight")] },
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
    { acts: [press(".plot", "0")] },
  ],
  [
    "overview: pointer over the chart",
    "samples",
    "run=frozen",
    { acts: [point(".u-over", "mousemove", 400, 150)] },
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
    },
  ],
  [
    "overview: dragged over the chart",
    "samples",
    "run=frozen",
    { acts: [drag(".u-over", [200, 100], [400, 100])] },
  ],
  ["overview: rows unfolded", "samples", "run=frozen", { acts: [click(".folded-rows button")] }],
  [
    "overview: category clicked, then cleared",
    "samples",
    "run=frozen",
    { acts: [click("tr.choosable"), press("body", "Escape")] },
  ],
  ["overview: category clicked", "samples", "run=frozen", { acts: [click("tr.choosable")] }],
  ["overview: mark clicked", "samples", "run=frozen", { acts: [click(".mark")] }],
  [
    "overview: mark of a failure clicked",
    "samples",
    "run=died_fragmentation",
    { acts: [click(".mark.failure")] },
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
    },
  ],
  [
    "overview: step entered",
    "samples",
    "run=frozen",
    { acts: [enter("[aria-label='Selected step']", "77")] },
  ],
  [
    "overview: downloads",
    "samples",
    "run=requests",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "PNG")] },
  ],
  [
    "overview: task that was unfrozen, step before",
    "tasks",
    "run=unfrozen&step=20",
    { since: "run=unfrozen" },
  ],
  ["overview: small run", "recorded", "run=small"],
  ["overview: device of a cluster", "devices", "device=worker_0%2FGPU%3A2", { since: "" }],
];

const LAYERS: Case[] = [
  ["layers", "samples", "view=layers&run=frozen"],
  ["layers: all columns", "samples", "view=layers&run=frozen&columns=1"],
  [
    "layers: layer selected",
    "samples",
    "view=layers&run=frozen&layer=vgg%2Fblock5_conv1",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: category selected",
    "samples",
    "view=layers&run=frozen&columns=1&category=weights",
    { since: "view=layers&run=frozen&columns=1" },
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
    { since: "view=layers&run=frozen" },
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
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: in the model's order",
    "samples",
    "view=layers&run=frozen&sort=model",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: by path",
    "samples",
    "view=layers&run=frozen&sort=path",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: by total",
    "samples",
    "view=layers&run=frozen&sort=total",
    { since: "view=layers&run=frozen" },
  ],
  [
    "layers: exact bytes",
    "samples",
    "view=layers&run=frozen&columns=1&exact=1",
    { since: "view=layers&run=frozen&columns=1" },
  ],
  ["layers: narrow", "samples", "view=layers&run=frozen", { width: 260 }],
  [
    "layers: step without a trace",
    "samples",
    "view=layers&run=frozen&step=1",
    { since: "view=layers&run=frozen" },
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
    { acts: [press(".layer-scroll", "ArrowDown", "ArrowDown", "ArrowUp")] },
  ],
  [
    "layers: header clicked",
    "samples",
    "view=layers&run=frozen",
    { acts: [click("thead button")] },
  ],
  [
    "layers: a block of the icicle clicked",
    "samples",
    "view=layers&run=frozen",
    { acts: [click(".cell:nth-child(3)")] },
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
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
  ["layer", "samples", "view=layer&run=frozen&layer=vgg%2Fblock5_conv1"],
  ["layer: frozen", "samples", "view=layer&run=frozen&layer=block1_conv1"],
  [
    "layer: step selected",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1&step=80",
    { since: "view=layer&run=frozen&layer=vgg%2Fblock5_conv1" },
  ],
  [
    "layer: category selected, by time",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1&category=weights&x=relative",
    { since: "view=layer&run=frozen&layer=vgg%2Fblock5_conv1" },
  ],
  [
    "layer: keys",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
    { acts: [press(".plot", "ArrowRight", "ArrowRight")] },
  ],
  [
    "layer: of a run traced once",
    "samples",
    "view=layer&run=died_fragmentation&layer=vgg%2Fblock5_conv1",
  ],
  [
    "layer: category hovered",
    "samples",
    "view=layer&run=frozen&layer=vgg%2Fblock5_conv1",
    { acts: [point("tr.choosable", "mouseenter", 5, 5)] },
  ],
  [
    "layers: row chosen by a key, then no more",
    "samples",
    "view=layers&run=frozen",
    { acts: [click(".layer-name"), click(".layer-name")] },
  ],
  [
    "layers: row chosen",
    "samples",
    "view=layers&run=frozen",
    { acts: [click(".layer-name"), press(".layer-scroll", "ArrowDown")] },
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
    { since: "view=layers&run=frozen" },
  ],
];

const FROZEN: Case[] = [
  ["frozen: unfrozen at a step", "samples", "view=frozen&run=frozen"],
  ["frozen: all trainable", "samples", "view=frozen&run=all_trainable"],
  [
    "frozen: growing, by time",
    "samples",
    "view=frozen&run=growing&x=relative",
    { since: "view=frozen&run=growing" },
  ],
  [
    "frozen: step selected",
    "samples",
    "view=frozen&run=frozen&step=41",
    { since: "view=frozen&run=frozen" },
  ],
  [
    "frozen: side hovered",
    "samples",
    "view=frozen&run=frozen",
    { acts: [point("tr.choosable", "mouseenter", 5, 5)] },
  ],
  [
    "frozen: keys",
    "samples",
    "view=frozen&run=frozen",
    { acts: [press(".plot", "Home", "Shift+ArrowRight", "Enter")] },
  ],
  ["frozen: task that was unfrozen", "tasks", "view=frozen&run=unfrozen"],
  [
    "frozen: change clicked",
    "tasks",
    "view=frozen&run=unfrozen",
    { acts: [click("[data-testid='changes'] button")] },
  ],
  ["frozen: recorded", "recorded", "view=frozen&run=finished"],
];

export const CASES: Case[] = [...FRAME, ...OVERVIEW, ...LAYERS, ...FROZEN, ...IN_STEPS, ...OF_RUNS];

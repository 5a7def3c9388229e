/** Addresses, and what a user does there. */

import { user, type Opening, type Report } from "./harness";

export type Case = [name: string, report: Report, address: string, opening?: Opening];

const { click, press, enter, point, drag } = user;

/** The whole page, and what changes in it. */
const FRAME: Case[] = [
  ["frame: all runs, the first one shown", "samples", "", { whole: true }],
  ["frame: two runs checked", "samples", "run=frozen&with=growing", { whole: true, since: "run=frozen" }],
  ["frame: runs filtered and sorted by peak", "samples", "run=frozen&filter=r.*n&runs=peak", { whole: true, since: "run=frozen" }],
  ["frame: a filter that is no expression", "samples", "run=frozen&filter=(", { whole: true, since: "run=frozen" }],
  ["frame: no run checked", "samples", "run=frozen&with=none", { whole: true, since: "run=frozen" }],
  [
    "frame: a run is checked, then its name clicked",
    "samples",
    "run=frozen",
    {
      whole: true,
      acts: async () => {
        await click("input[aria-label='Plot growing']");
        await click(".run-name", "growinggrows166 MiB");
      },
    },
  ],
  [
    "frame: list of runs opened, help opened",
    "samples",
    "run=frozen",
    {
      whole: true,
      acts: async () => {
        await click(".runs-button");
        await press("main", "?");
      },
    },
  ],
  [
    "frame: a digit opens a tab, a slash its search",
    "samples",
    "run=frozen",
    {
      whole: true,
      since: "view=layers&run=frozen",
      acts: async () => press("main", "2", "/"),
    },
  ],
  [
    "frame: tip of a figure by the keyboard",
    "samples",
    "run=frozen",
    { acts: async () => press("tr[data-tip]", "ArrowDown", "ArrowDown", "End", "ArrowUp", "Home") },
  ],
  ["frame: tip of a figure under the pointer", "samples", "run=frozen", { acts: async () => point("tr[data-tip]", "pointerover", 5, 5) }],
  ["frame: an answer is opened", "samples", "run=frozen", { whole: true, acts: async () => click("[data-answer='changed']") }],
  ["frame: answer of growth is opened", "samples", "run=growing", { whole: true, acts: async () => click("[data-answer='growing']") }],
  [
    "frame: answer of fragmentation is opened",
    "samples",
    "run=died_fragmentation",
    { whole: true, acts: async () => click("[data-answer='fragmented']") },
  ],
  ["frame: run that grows", "samples", "run=growing", { whole: true, since: "run=frozen" }],
  ["frame: run that failed", "samples", "run=died_fragmentation", { whole: true }],
  ["frame: run with every request", "samples", "run=requests", { whole: true }],
  ["frame: run that failed in a task", "tasks", "run=failed", { whole: true }],
  ["frame: run whose model was unfrozen", "tasks", "run=unfrozen", { whole: true }],
  ["frame: recorded run that failed", "recorded", "run=out_of_memory", { whole: true }],
  ["frame: recorded run", "recorded", "run=finished", { whole: true }],
  ["frame: cluster", "devices", "", { whole: true }],
];

const OVERVIEW: Case[] = [
  ["overview: growing run", "samples", "run=growing"],
  ["overview: validation", "samples", "run=frozen&phase=validation", { since: "run=frozen" }],
  ["overview: attempt of two", "samples", "run=restarted&session=00000000000000000000000013", { since: "run=restarted" }],
  ["overview: run with two attempts", "samples", "run=restarted", { whole: true }],
  ["overview: step selected", "samples", "run=frozen&step=100", { since: "run=frozen" }],
  ["overview: traced step selected", "samples", "run=frozen&step=41", { since: "run=frozen" }],
  ["overview: first step selected", "samples", "run=frozen&step=0", { since: "run=frozen" }],
  ["overview: category selected", "samples", "run=frozen&category=activations", { since: "run=frozen" }],
  ["overview: layer selected", "samples", "run=frozen&layer=vgg%2Fblock5_conv1", { since: "run=frozen" }],
  ["overview: by time", "samples", "run=frozen&x=relative", { since: "run=frozen" }],
  ["overview: by time of day", "samples", "run=frozen&x=wall", { since: "run=frozen" }],
  ["overview: zoomed", "samples", "run=frozen&zoom=150-180", { since: "run=frozen" }],
  ["overview: exact bytes", "samples", "run=frozen&exact=1", { since: "run=frozen" }],
  ["overview: two runs by time", "samples", "run=frozen&with=growing&x=relative", { since: "run=frozen" }],
  ["overview: three runs, one without the phase", "samples", "run=frozen&with=requests&with=all_trainable&phase=validation"],
  ["overview: narrow", "samples", "run=frozen", { width: 420 }],
  [
    "overview: keys over the chart",
    "samples",
    "run=frozen",
    { acts: async () => press(".plot", "End", "ArrowLeft", "Shift+ArrowLeft", "ArrowRight") },
  ],
  ["overview: key past the last step", "samples", "run=frozen", { acts: async () => press(".plot", "End", "ArrowRight") }],
  [
    "overview: step selected and zoomed by keys",
    "samples",
    "run=frozen",
    { acts: async () => press(".plot", "Home", "Shift+ArrowRight", "Enter", "+", "d", "+", "a", "-") },
  ],
  ["overview: zoom undone by a key", "samples", "run=frozen&zoom=150-180", { acts: async () => press(".plot", "0") }],
  ["overview: pointer over the chart", "samples", "run=frozen", { acts: async () => point(".u-over", "mousemove", 400, 150) }],
  [
    "overview: step clicked",
    "samples",
    "run=frozen",
    {
      acts: async () => {
        await point(".u-over", "mousemove", 300, 150);
        await point(".u-over", "click", 300, 150, { detail: 1 });
      },
    },
  ],
  ["overview: dragged over the chart", "samples", "run=frozen", { acts: async () => drag(".u-over", [200, 100], [400, 100]) }],
  ["overview: rows unfolded", "samples", "run=frozen", { acts: async () => click(".folded-rows button") }],
  [
    "overview: category clicked, then cleared",
    "samples",
    "run=frozen",
    {
      acts: async () => {
        await click("tr.choosable");
        await press("body", "Escape");
      },
    },
  ],
  ["overview: category clicked", "samples", "run=frozen", { acts: async () => click("tr.choosable") }],
  ["overview: mark clicked", "samples", "run=frozen", { acts: async () => click(".mark") }],
  ["overview: mark of a failure clicked", "samples", "run=died_fragmentation", { acts: async () => click(".mark.failure") }],
  ["overview: finding clicked", "samples", "run=growing", { acts: async () => click(".findings button") }],
  [
    "overview: next and previous traced step",
    "samples",
    "run=frozen",
    {
      acts: async () => {
        await click("[aria-label='Next traced step']");
        await click("[aria-label='Previous traced step']");
        await click("[aria-label='Previous traced step']");
      },
    },
  ],
  ["overview: step entered", "samples", "run=frozen", { acts: async () => enter("[aria-label='Selected step']", "77") }],
  [
    "overview: downloads",
    "samples",
    "run=requests",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "PNG");
      },
    },
  ],
  ["overview: task that was unfrozen, step before", "tasks", "run=unfrozen&step=20", { since: "run=unfrozen" }],
  ["overview: small run", "recorded", "run=small"],
  ["overview: device of a cluster", "devices", "device=worker_0%2FGPU%3A2", { since: "" }],
];

const LAYERS: Case[] = [
  ["layers", "samples", "view=layers&run=frozen"],
  ["layers: layer selected", "samples", "view=layers&run=frozen&layer=vgg%2Fblock5_conv1", { since: "view=layers&run=frozen" }],
  ["layers: category selected", "samples", "view=layers&run=frozen&category=weights", { since: "view=layers&run=frozen" }],
  ["layers: by type", "samples", "view=layers&run=frozen&group=type", { since: "view=layers&run=frozen" }],
  ["layers: by model", "samples", "view=layers&run=frozen&group=model", { since: "view=layers&run=frozen" }],
  ["layers: searched", "samples", "view=layers&run=frozen&search=block5", { since: "view=layers&run=frozen" }],
  ["layers: nothing found", "samples", "view=layers&run=frozen&search=zzz", { since: "view=layers&run=frozen" }],
  ["layers: in the model's order", "samples", "view=layers&run=frozen&sort=model", { since: "view=layers&run=frozen" }],
  ["layers: by path", "samples", "view=layers&run=frozen&sort=path", { since: "view=layers&run=frozen" }],
  ["layers: by total", "samples", "view=layers&run=frozen&sort=total", { since: "view=layers&run=frozen" }],
  ["layers: exact bytes", "samples", "view=layers&run=frozen&exact=1", { since: "view=layers&run=frozen" }],
  ["layers: narrow", "samples", "view=layers&run=frozen", { width: 260 }],
  ["layers: step without a trace", "samples", "view=layers&run=frozen&step=1", { since: "view=layers&run=frozen" }],
  ["layers: another traced step", "samples", "view=layers&run=frozen&step=41", { since: "view=layers&run=frozen" }],
  [
    "layers: keys in the table",
    "samples",
    "view=layers&run=frozen",
    { acts: async () => press(".layer-scroll", "ArrowDown", "ArrowDown", "ArrowUp") },
  ],
  ["layers: header clicked", "samples", "view=layers&run=frozen", { acts: async () => click("thead button") }],
  ["layers: a layer of the treemap clicked", "samples", "view=layers&run=frozen", { acts: async () => click(".treemap .area") }],
  ["layers: run with every request", "samples", "view=layers&run=requests"],
  ["layers: task that was unfrozen", "tasks", "view=layers&run=unfrozen"],
  ["layers: task before it was unfrozen", "tasks", "view=layers&run=unfrozen&step=10", { since: "view=layers&run=unfrozen" }],
  ["layers: recorded failure", "recorded", "view=layers&run=out_of_memory&search=block1"],
  ["layers: validation", "samples", "view=layers&run=frozen&phase=validation", { since: "view=layers&run=frozen" }],
  [
    "layers: download",
    "samples",
    "view=layers&run=requests",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
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
    { acts: async () => press(".plot", "ArrowRight", "ArrowRight") },
  ],
  ["layer: unknown", "samples", "view=layer&run=frozen&layer=nothing", { since: "view=layers&run=frozen" }],
];

const FROZEN: Case[] = [
  ["frozen: unfrozen at a step", "samples", "view=frozen&run=frozen"],
  ["frozen: all trainable", "samples", "view=frozen&run=all_trainable"],
  ["frozen: growing, by time", "samples", "view=frozen&run=growing&x=relative", { since: "view=frozen&run=growing" }],
  ["frozen: step selected", "samples", "view=frozen&run=frozen&step=41", { since: "view=frozen&run=frozen" }],
  ["frozen: keys", "samples", "view=frozen&run=frozen", { acts: async () => press(".plot", "Home", "Shift+ArrowRight", "Enter") }],
  ["frozen: task that was unfrozen", "tasks", "view=frozen&run=unfrozen"],
  ["frozen: change clicked", "tasks", "view=frozen&run=unfrozen", { acts: async () => click("[data-testid='changes'] button") }],
  ["frozen: recorded", "recorded", "view=frozen&run=finished"],
];

const STEP = "view=step&run=frozen";
const OOM_STEP = "view=step&run=out_of_memory";
const STEPS: Case[] = [
  ["step", "samples", STEP],
  ["step: by category", "samples", `${STEP}&stack=category`, { since: STEP }],
  ["step: by layer", "samples", `${STEP}&stack=layer`, { since: STEP }],
  ["step: by category, layer selected", "samples", `${STEP}&stack=category&layer=vgg%2Fblock5_conv1`, { since: `${STEP}&stack=category` }],
  ["step: tensors by layer", "samples", `${STEP}&tensor_colour=layer`, { since: STEP }],
  ["step: by event", "samples", `${STEP}&timeline=event+index`, { since: STEP }],
  ["step: moment and tensor selected", "samples", `${STEP}&moment=20&tensor=30`, { since: STEP }],
  ["step: category selected", "samples", `${STEP}&category=activations`, { since: STEP }],
  ["step: layer selected", "samples", `${STEP}&layer=vgg%2Fblock5_conv1`, { since: STEP }],
  ["step: zoomed", "samples", `${STEP}&span=20-30`, { since: STEP }],
  ["step: span selected", "samples", `${STEP}&selected=10-30`, { since: STEP }],
  ["step: one moment as span", "samples", `${STEP}&selected=10-10`, { since: STEP }],
  ["step: survivors", "samples", `${STEP}&survived=1`, { since: STEP }],
  ["step: searched", "samples", `${STEP}&search=block4`, { since: STEP }],
  ["step: exact", "samples", `${STEP}&exact=1`, { since: STEP }],
  ["step: without a timeline", "samples", "view=step&run=growing"],
  ["step: validation", "samples", `${STEP}&phase=validation`],
  ["step: first one", "samples", `${STEP}&step=3`, { since: STEP }],
  ["step: keys", "samples", STEP, { acts: async () => press(".plot", "ArrowRight", "Shift+ArrowRight", "Enter", "+", "d") }],
  ["step: moments marked by keys", "samples", STEP, { acts: async () => press(".plot", "Home", "m", "Shift+ArrowRight", "m") }],
  [
    "step: pointer over a tensor",
    "samples",
    STEP,
    {
      acts: async () => {
        await point("#step-chart", "pointermove", 400, 150);
        await point(".u-over", "mousemove", 400, 200);
      },
    },
  ],
  ["step: pointer over a category", "samples", `${STEP}&stack=category`, { acts: async () => point(".u-over", "mousemove", 400, 200) }],
  [
    "step: tensor clicked",
    "samples",
    STEP,
    {
      acts: async () => {
        await point(".u-over", "mousemove", 300, 220);
        await point(".u-over", "click", 300, 220, { detail: 1 });
      },
    },
  ],
  [
    "step: wheel turned",
    "samples",
    STEP,
    {
      acts: async () => {
        await point(".u-over", "wheel", 300, 220, { deltaY: -400 });
        await point(".u-over", "wheel", 300, 220, { deltaX: 60 });
      },
    },
  ],
  ["step: span dragged with Ctrl", "samples", STEP, { acts: async () => drag(".u-over", [200, 100], [400, 100], { ctrlKey: true }) }],
  ["step: zoomed by a drag", "samples", STEP, { acts: async () => drag(".u-over", [200, 100], [400, 100]) }],
  [
    "step: panned with Shift",
    "samples",
    `${STEP}&span=10-20`,
    { acts: async () => drag(".u-over", [400, 100], [300, 100], { shiftKey: true }) },
  ],
  ["step: zoomed to the tensor", "samples", `${STEP}&tensor=30`, { acts: async () => click(".tensor-tools button", "Zoom to lifetime") }],
  [
    "step: list sorted",
    "samples",
    STEP,
    {
      acts: async () => {
        await click("[data-testid='live'] .column-layer button");
        await click("[data-testid='live'] .column-freed button");
      },
    },
  ],
  ["step: row of the list clicked", "samples", STEP, { acts: async () => click("[data-testid='live'] tbody tr[data-row] .operation") }],
  [
    "step: keys on the minimap",
    "samples",
    `${STEP}&span=10-20`,
    { acts: async () => press(".minimap-box", "ArrowRight", "ArrowLeft", "Home", "End") },
  ],
  [
    "step: minimap dragged",
    "samples",
    `${STEP}&span=10-20`,
    {
      acts: async () => {
        await point(".minimap-box", "pointerdown", 20, 5, { pointerId: 1, button: 0 });
        await point(".minimap-box", "pointermove", 120, 5, { pointerId: 1 });
        await point(".minimap-box", "pointerup", 120, 5, { pointerId: 1 });
      },
    },
  ],
  [
    "step: download",
    "samples",
    "view=step&run=all_trainable&step=3",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
  ["step: run with every request", "samples", "view=step&run=requests"],
  ["step: failure", "recorded", OOM_STEP],
  ["step: tensors at their addresses", "recorded", `${OOM_STEP}&place=by+address`, { since: OOM_STEP }],
  [
    "step: at addresses, by layer and event, zoomed",
    "recorded",
    `${OOM_STEP}&place=by+address&tensor_colour=layer&timeline=event+index&span=40-90`,
    { since: OOM_STEP },
  ],
  ["step: failure, span selected", "recorded", `${OOM_STEP}&selected=30-90`, { since: OOM_STEP }],
  ["step: failure, earlier", "recorded", `${OOM_STEP}&step=5&stack=layer`, { since: OOM_STEP }],
  ["step: failure, survivors", "recorded", `${OOM_STEP}&step=5&survived=1&moment=4`, { since: OOM_STEP }],
  ["step: narrow", "samples", STEP, { width: 300 }],
];

const FRAGMENTATION: Case[] = [
  ["fragmentation", "samples", "view=fragmentation&run=frozen"],
  ["fragmentation: died", "samples", "view=fragmentation&run=died_fragmentation"],
  ["fragmentation: step with a map", "samples", "view=fragmentation&run=frozen&step=163", { since: "view=fragmentation&run=frozen" }],
  [
    "fragmentation: by age",
    "samples",
    "view=fragmentation&run=frozen&step=163&colour=age",
    { since: "view=fragmentation&run=frozen&step=163" },
  ],
  [
    "fragmentation: by layer",
    "samples",
    "view=fragmentation&run=frozen&step=163&colour=layer",
    { since: "view=fragmentation&run=frozen&step=163" },
  ],
  [
    "fragmentation: category selected",
    "samples",
    "view=fragmentation&run=frozen&step=163&category=weights",
    { since: "view=fragmentation&run=frozen&step=163" },
  ],
  [
    "fragmentation: size to fit",
    "samples",
    "view=fragmentation&run=frozen&step=163&fit=40",
    { since: "view=fragmentation&run=frozen&step=163" },
  ],
  [
    "fragmentation: keys over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { acts: async () => press(".strip-plot", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "+", "Enter") },
  ],
  [
    "fragmentation: region zoomed by keys",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { acts: async () => press(".strip-plot", "End", "w", "w", "a", "s") },
  ],
  [
    "fragmentation: pointer over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: async () => {
        await point(".strip-plot", "pointerdown", 100, 5);
        await point(".strip-plot", "pointermove", 300, 5);
      },
    },
  ],
  [
    "fragmentation: region dragged open",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: async () => {
        await point(".strip-plot", "pointerdown", 100, 5);
        await point(".strip-plot", "pointermove", 300, 5);
        await point(".strip-plot", "pointerup", 300, 5);
      },
    },
  ],
  [
    "fragmentation: wheel over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: async () => {
        await point(".strip-plot", "wheel", 100, 5, { deltaY: -10, ctrlKey: true });
        await point(".strip-plot", "wheel", 100, 5, { deltaX: 60 });
      },
    },
  ],
  [
    "fragmentation: region widened",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { acts: async () => click(".strip-label button") },
  ],
  [
    "fragmentation: keys over the chart",
    "samples",
    "view=fragmentation&run=frozen",
    { acts: async () => press(".plot", "ArrowRight", "End") },
  ],
  ["fragmentation: validation", "samples", "view=fragmentation&run=frozen&phase=validation"],
  ["fragmentation: without maps", "samples", "view=fragmentation&run=growing"],
  ["fragmentation: pool that grows", "tasks", "view=fragmentation&run=unfrozen"],
  ["fragmentation: cluster", "devices", "view=fragmentation"],
  ["fragmentation: recorded failure", "recorded", "view=fragmentation&run=out_of_memory"],
  ["fragmentation: size typed", "recorded", "view=fragmentation&run=out_of_memory", { acts: async () => enter(".fits input", "300") }],
  ["fragmentation: download", "samples", "view=fragmentation&run=requests", { acts: async () => click(".downloads-menu button", "CSV") }],
];

const OTHERS: Case[] = [
  ["host", "samples", "view=host&run=frozen"],
  ["host: growing", "samples", "view=host&run=growing"],
  ["host: keys, step", "samples", "view=host&run=frozen&step=30", { acts: async () => press(".plot", "ArrowRight", "ArrowRight") }],
  ["host: by time", "samples", "view=host&run=frozen&x=wall", { since: "view=host&run=frozen" }],
  ["host: recorded", "recorded", "view=host&run=out_of_memory"],
  ["host: small", "recorded", "view=host&run=small"],
  ["devices", "devices", "view=devices"],
  ["devices: by peak", "devices", "view=devices&devices=peak_bytes", { since: "view=devices" }],
  ["devices: by headroom", "devices", "view=devices&devices=headroom_bytes", { since: "view=devices" }],
  ["devices: searched", "devices", "view=devices&search=worker_1", { since: "view=devices" }],
  ["devices: device selected", "devices", "view=devices&device=worker_0%2FGPU%3A2", { since: "view=devices" }],
  ["devices: step", "devices", "view=devices&step=30", { since: "view=devices" }],
  ["devices: category", "devices", "view=devices&category=weights", { since: "view=devices" }],
  ["devices: validation", "devices", "view=devices&phase=validation", { since: "view=devices" }],
  ["devices: exact", "devices", "view=devices&exact=1", { since: "view=devices" }],
  [
    "devices: keys in the table",
    "devices",
    "view=devices",
    { acts: async () => press("[aria-label='Table of devices']", "ArrowDown", "ArrowDown", "ArrowUp") },
  ],
  ["devices: row clicked", "devices", "view=devices", { acts: async () => click("[data-testid='devices'] tbody tr[data-device]") }],
  ["devices: keys over a chart", "devices", "view=devices", { acts: async () => press(".plot", "ArrowRight", "ArrowRight") }],
  [
    "devices: download",
    "devices",
    "view=devices",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
  ["failure", "samples", "view=oom&run=died_fragmentation"],
  ["failure: task", "tasks", "view=oom&run=failed"],
  ["failure: recorded", "recorded", "view=oom&run=out_of_memory"],
  ["failure: small", "recorded", "view=oom&run=small"],
  ["failure: none", "samples", "view=oom&run=frozen"],
  ["failure: by age", "recorded", "view=oom&run=out_of_memory&colour=age", { since: "view=oom&run=out_of_memory" }],
  ["failure: category", "recorded", "view=oom&run=out_of_memory&category=activations", { since: "view=oom&run=out_of_memory" }],
  [
    "failure: request moved over chunks",
    "samples",
    "view=oom&run=died_fragmentation",
    { acts: async () => press(".request-chip", "ArrowRight", "ArrowRight", "ArrowLeft", "End") },
  ],
  [
    "failure: download",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
  ["what if", "samples", "view=what-if&run=frozen"],
  ["what if: requests", "samples", "view=what-if&run=requests"],
  ["what if: failed", "tasks", "view=what-if&run=failed"],
  ["what if: recorded failure", "recorded", "view=what-if&run=out_of_memory"],
  ["what if: no requests", "samples", "view=what-if&run=growing"],
  ["what if: other batch", "recorded", "view=what-if&run=out_of_memory&batch_size=64", { since: "view=what-if&run=out_of_memory" }],
  [
    "what if: conditions typed",
    "recorded",
    "view=what-if&run=out_of_memory",
    {
      acts: async () => {
        await enter(".conditions input", "32");
        await press(".conditions input", "Enter");
      },
    },
  ],
  ["what if: keys over the curve", "recorded", "view=what-if&run=out_of_memory", { acts: async () => press(".plot", "ArrowRight") }],
  [
    "what if: download",
    "recorded",
    "view=what-if&run=out_of_memory",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
  ["fit", "samples", "view=fit&run=frozen"],
  ["fit: failed", "tasks", "view=fit&run=failed"],
  ["fit: recorded failure", "recorded", "view=fit&run=out_of_memory"],
  ["fit: budget", "recorded", "view=fit&run=out_of_memory&budget=300MiB", { since: "view=fit&run=out_of_memory" }],
  ["fit: died", "samples", "view=fit&run=died_fragmentation"],
  [
    "fit: download",
    "recorded",
    "view=fit&run=out_of_memory",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
  ["activations", "recorded", "view=activations&run=finished"],
  [
    "activations: two runs, by time",
    "recorded",
    "view=activations&run=finished&with=small&x=relative",
    { since: "view=activations&run=finished" },
  ],
  ["activations: keys", "recorded", "view=activations&run=finished", { acts: async () => press(".plot", "ArrowRight", "ArrowRight") }],
  ["activations: none", "samples", "view=activations&run=frozen"],
  ["activations: of a run without them", "recorded", "view=activations&run=out_of_memory&with=finished"],
];

const PAIR = "view=compare&run=all_trainable&other=frozen";
const COMPARE: Case[] = [
  ["compare", "samples", PAIR],
  ["compare: swapped", "samples", PAIR, { acts: async () => click("[aria-label='Swap A and B']") }],
  ["compare: all layers", "samples", `${PAIR}&all=1`, { since: PAIR }],
  ["compare: layer selected", "samples", `${PAIR}&layer=vgg%2Fblock5_conv1`, { since: PAIR }],
  ["compare: category selected", "samples", `${PAIR}&category=activations`, { since: PAIR }],
  ["compare: steps", "samples", `${PAIR}&step=60&other_step=120`, { since: PAIR }],
  ["compare: one run, two steps", "samples", "view=compare&run=frozen&other=frozen&step=120&other_step=235"],
  ["compare: growing, by time", "samples", "view=compare&run=growing&other=frozen&x=relative"],
  ["compare: no phase in B", "samples", "view=compare&run=frozen&other=requests&phase=validation"],
  ["compare: exact", "samples", `${PAIR}&exact=1`, { since: PAIR }],
  ["compare: narrow", "samples", PAIR, { width: 360 }],
  ["compare: keys", "samples", PAIR, { acts: async () => press(".plot", "ArrowRight", "Shift+ArrowRight") }],
  ["compare: step of B entered", "samples", PAIR, { acts: async () => enter("[aria-label^='Step of B']", "60") }],
  ["compare: different models", "recorded", "view=compare&run=finished&other=out_of_memory"],
  ["compare: tasks", "tasks", "view=compare&run=failed&other=unfrozen"],
  [
    "compare: download",
    "tasks",
    "view=compare&run=failed&other=unfrozen",
    {
      acts: async () => {
        await click(".downloads-menu button", "CSV");
        await click(".downloads-menu button", "SVG");
      },
    },
  ],
];

export const CASES: Case[] = [...FRAME, ...OVERVIEW, ...LAYERS, ...FROZEN, ...STEPS, ...FRAGMENTATION, ...OTHERS, ...COMPARE];

/** Views of what happens inside of steps: timelines, memory maps. */

import { user, type Case } from "./harness";

const { click, press, enter, point, drag, scroll } = user;

const STEP = "view=step&run=frozen";
const OOM_STEP = "view=step&run=out_of_memory";
const STEPS: Case[] = [
  ["step", "samples", STEP],
  ["step: by category", "samples", `${STEP}&stack=category`, { since: STEP }],
  ["step: by layer", "samples", `${STEP}&stack=layer`, { since: STEP }],
  [
    "step: by category, layer selected",
    "samples",
    `${STEP}&stack=category&layer=vgg%2Fblock5_conv1`,
    { since: `${STEP}&stack=category` },
  ],
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
  [
    "step: keys",
    "samples",
    STEP,
    { acts: [press(".plot", "ArrowRight", "Shift+ArrowRight", "Enter", "+", "d")] },
  ],
  [
    "step: moments marked by keys",
    "samples",
    STEP,
    { acts: [press(".plot", "Home", "m", "Shift+ArrowRight", "m")] },
  ],
  [
    "step: pointer over a tensor",
    "samples",
    STEP,
    {
      acts: [
        point("#step-chart", "pointermove", 400, 150),
        point(".u-over", "mousemove", 400, 200),
      ],
    },
  ],
  [
    "step: pointer over a category",
    "samples",
    `${STEP}&stack=category`,
    { acts: [point(".u-over", "mousemove", 400, 200)] },
  ],
  [
    "step: tensor clicked",
    "samples",
    STEP,
    {
      acts: [
        point(".u-over", "mousemove", 300, 220),
        point(".u-over", "click", 300, 220, { detail: 1 }),
      ],
    },
  ],
  [
    "step: wheel turned",
    "samples",
    STEP,
    {
      acts: [
        point(".u-over", "wheel", 300, 220, { deltaY: -400 }),
        point(".u-over", "wheel", 300, 220, { deltaX: 60 }),
      ],
    },
  ],
  [
    "step: wheel turned after the whole step was shown",
    "samples",
    STEP,
    {
      acts: [
        point(".u-over", "wheel", 300, 220, { deltaY: -400 }),
        click(".timeline-bar button", "Show whole step"),
        point(".u-over", "wheel", 600, 220, { deltaY: -100 }),
      ],
    },
  ],
  ["step: list scrolled", "samples", STEP, { acts: [scroll(".layer-scroll", 600)] }],
  [
    "step: keys in the list",
    "samples",
    STEP,
    { acts: [press(".layer-scroll", "ArrowDown", "ArrowDown", "End")] },
  ],
  [
    "step: survivors and event index chosen",
    "samples",
    STEP,
    { acts: [click(".survived"), click(".segments button", "event index")] },
  ],
  [
    "step: category hovered",
    "samples",
    `${STEP}&stack=category`,
    { acts: [point("tr.choosable", "mouseenter", 5, 5)] },
  ],
  ["step: moment cleared", "samples", `${STEP}&moment=20`, { acts: [click(".unpin")] }],
  [
    "step: tensor cleared by Escape",
    "samples",
    `${STEP}&tensor=30&moment=20`,
    { acts: [press("body", "Escape")] },
  ],
  [
    "step: zoom reset by a double-click",
    "samples",
    `${STEP}&span=10-20`,
    { acts: [point(".u-over", "dblclick", 300, 100)] },
  ],
  [
    "step: zoomed to the selected span",
    "samples",
    `${STEP}&selected=10-30`,
    { acts: [click(".tensor.span button", "Zoom to span")] },
  ],
  [
    "step: span dragged with Ctrl",
    "samples",
    STEP,
    { acts: [drag(".u-over", [200, 100], [400, 100], { ctrlKey: true })] },
  ],
  ["step: zoomed by a drag", "samples", STEP, { acts: [drag(".u-over", [200, 100], [400, 100])] }],
  [
    "step: panned with Shift",
    "samples",
    `${STEP}&span=10-20`,
    { acts: [drag(".u-over", [400, 100], [300, 100], { shiftKey: true })] },
  ],
  [
    "step: zoomed to the tensor",
    "samples",
    `${STEP}&tensor=30`,
    { acts: [click(".tensor-tools button", "Zoom to lifetime")] },
  ],
  [
    "step: list sorted",
    "samples",
    STEP,
    {
      acts: [
        click("[data-testid='live'] .column-layer button"),
        click("[data-testid='live'] .column-freed button"),
      ],
    },
  ],
  [
    "step: row of the list clicked",
    "samples",
    STEP,
    { acts: [click("[data-testid='live'] tbody tr[data-row] .operation")] },
  ],
  [
    "step: keys on the minimap",
    "samples",
    `${STEP}&span=10-20`,
    { acts: [press(".minimap-box", "ArrowRight", "ArrowLeft", "Home", "End")] },
  ],
  [
    "step: minimap dragged",
    "samples",
    `${STEP}&span=10-20`,
    {
      acts: [
        point(".minimap-box", "pointerdown", 20, 5, { pointerId: 1, button: 0 }),
        point(".minimap-box", "pointermove", 120, 5, { pointerId: 1 }),
        point(".minimap-box", "pointerup", 120, 5, { pointerId: 1 }),
      ],
    },
  ],
  [
    "step: download",
    "samples",
    "view=step&run=all_trainable&step=3",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
  ["step: run with every request", "samples", "view=step&run=requests"],
  ["step: failure", "recorded", OOM_STEP],
  [
    "step: tensors at their addresses",
    "recorded",
    `${OOM_STEP}&place=by+address`,
    { since: OOM_STEP },
  ],
  [
    "step: at addresses, by layer and event, zoomed",
    "recorded",
    `${OOM_STEP}&place=by+address&tensor_colour=layer&timeline=event+index&span=40-90`,
    { since: OOM_STEP },
  ],
  ["step: failure, span selected", "recorded", `${OOM_STEP}&selected=30-90`, { since: OOM_STEP }],
  ["step: failure, earlier", "recorded", `${OOM_STEP}&step=6&stack=layer`, { since: OOM_STEP }],
  [
    "step: failure, survivors",
    "recorded",
    `${OOM_STEP}&step=6&survived=1&moment=4`,
    { since: OOM_STEP },
  ],
  ["step: narrow", "samples", STEP, { width: 300 }],
];

const FRAGMENTATION: Case[] = [
  ["fragmentation", "samples", "view=fragmentation&run=frozen"],
  ["fragmentation: died", "samples", "view=fragmentation&run=died_fragmentation"],
  [
    "fragmentation: step with a map",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { since: "view=fragmentation&run=frozen" },
  ],
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
    { acts: [press(".strip-plot", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "+", "Enter")] },
  ],
  [
    "fragmentation: region zoomed by keys",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { acts: [press(".strip-plot", "End", "w", "w", "a", "s")] },
  ],
  [
    "fragmentation: pointer over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [
        point(".strip-plot", "pointerdown", 100, 5),
        point(".strip-plot", "pointermove", 300, 5),
      ],
    },
  ],
  [
    "fragmentation: region dragged open",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [
        point(".strip-plot", "pointerdown", 100, 5),
        point(".strip-plot", "pointermove", 300, 5),
        point(".strip-plot", "pointerup", 300, 5),
      ],
    },
  ],
  [
    "fragmentation: wheel over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [
        point(".strip-plot", "wheel", 100, 5, { deltaY: -10, ctrlKey: true }),
        point(".strip-plot", "wheel", 100, 5, { deltaX: 60 }),
      ],
    },
  ],
  [
    "fragmentation: region widened",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { acts: [click(".strip-label button")] },
  ],
  [
    "fragmentation: keys over the chart",
    "samples",
    "view=fragmentation&run=frozen",
    { acts: [press(".plot", "ArrowRight", "End")] },
  ],
  ["fragmentation: validation", "samples", "view=fragmentation&run=frozen&phase=validation"],
  ["fragmentation: without maps", "samples", "view=fragmentation&run=growing"],
  ["fragmentation: pool that grows", "tasks", "view=fragmentation&run=unfrozen"],
  ["fragmentation: cluster", "devices", "view=fragmentation"],
  ["fragmentation: recorded failure", "recorded", "view=fragmentation&run=out_of_memory"],
  [
    "fragmentation: size typed",
    "recorded",
    "view=fragmentation&run=out_of_memory",
    { acts: [enter(".fits input", "300")] },
  ],
  [
    "fragmentation: download",
    "samples",
    "view=fragmentation&run=requests",
    { acts: [click(".downloads-menu button", "CSV")] },
  ],
];

export const IN_STEPS: Case[] = [...STEPS, ...FRAGMENTATION];

/** Views of a run as a whole: host, devices, failures, predictions, comparisons. */

import { user, type Case } from "./harness";

const { click, press, enter, point, scroll } = user;

/**
 * Of a recorded training whose compiled step failed: two dense layers and an attention block, batch
 * size 256.
 */
const DENSE = ["net/dense_1", "net/dense_3"];
const COMPILED = {
  request: {
    sentence: "241 MiB requested; the largest: four tensors of (16384, 256) of 2 layers, 64.0 MiB.",
    tensors: [
      { shape: [16384, 256], dtype: "float32", count: 4, bytes: 67108864, layers: DENSE },
      { shape: [256, 64, 256], dtype: "float32", count: 4, bytes: 67108864, layers: DENSE },
      {
        shape: [256, 64, 64],
        dtype: "float32",
        count: 13,
        bytes: 54525952,
        layers: ["net", "net/layer_normalization_3"],
      },
      {
        shape: [256, 4, 64, 64],
        dtype: "float32",
        count: 2,
        bytes: 33554432,
        layers: ["net/multi_head_attention"],
      },
      { shape: [256, 4, 64, 16], dtype: "float32", count: 4, bytes: 16777216, layers: [] },
      {
        shape: [16384, 1, 64],
        dtype: "float32",
        count: 1,
        bytes: 4194304,
        layers: ["net/embedding"],
      },
      { shape: [256, 64], dtype: "float32", count: 7, bytes: 458752, layers: DENSE },
    ],
  },
};

const OTHERS: Case[] = [
  ["host", "samples", "view=host&run=frozen"],
  ["host: growing", "samples", "view=host&run=growing"],
  ["host: validation", "samples", "view=host&run=frozen&phase=validation"],
  [
    "host: keys, step",
    "samples",
    "view=host&run=frozen&step=30",
    { acts: [press(".plot", "ArrowRight", "ArrowRight")] },
  ],
  ["host: by time", "samples", "view=host&run=frozen&x=wall", { since: "view=host&run=frozen" }],
  ["host: recorded", "recorded", "view=host&run=out_of_memory"],
  ["host: small", "recorded", "view=host&run=small"],
  ["devices", "devices", "view=devices"],
  ["devices: by peak", "devices", "view=devices&devices=peak_bytes", { since: "view=devices" }],
  [
    "devices: by headroom",
    "devices",
    "view=devices&devices=headroom_bytes",
    { since: "view=devices" },
  ],
  ["devices: searched", "devices", "view=devices&search=worker_1", { since: "view=devices" }],
  [
    "devices: device selected",
    "devices",
    "view=devices&device=worker_0%2FGPU%3A2",
    { since: "view=devices" },
  ],
  ["devices: step", "devices", "view=devices&step=30", { since: "view=devices" }],
  ["devices: category", "devices", "view=devices&category=weights", { since: "view=devices" }],
  ["devices: validation", "devices", "view=devices&phase=validation", { since: "view=devices" }],
  ["devices: exact", "devices", "view=devices&exact=1", { since: "view=devices" }],
  [
    "devices: keys in the table",
    "devices",
    "view=devices",
    { acts: [press("[aria-label='Table of devices']", "ArrowDown", "ArrowDown", "ArrowUp")] },
  ],
  ["devices: legend clicked", "devices", "view=devices", { acts: [click("button.legend-item")] }],
  [
    "devices: worker clicked",
    "devices",
    "view=devices",
    { acts: [click("[aria-label^='Workers to look'] button")] },
  ],
  [
    "devices: list scrolled",
    "devices",
    "view=devices",
    { acts: [scroll("[aria-label='Table of devices']", 280)] },
  ],
  [
    "devices: sorted by a header",
    "devices",
    "view=devices",
    { acts: [click("[data-testid='devices'] thead .number button")] },
  ],
  [
    "devices: row clicked",
    "devices",
    "view=devices",
    { acts: [click("[data-testid='devices'] tbody tr[data-device]")] },
  ],
  [
    "devices: keys over a chart",
    "devices",
    "view=devices",
    { acts: [press(".plot", "ArrowRight", "ArrowRight")] },
  ],
  [
    "devices: download",
    "devices",
    "view=devices",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
  ["failure", "samples", "view=oom&run=died_fragmentation"],
  [
    "failure: request of a compiled module",
    "samples",
    "view=oom&run=died_fragmentation",
    { since: "view=oom&run=died_fragmentation", failure: COMPILED },
  ],
  ["failure: task", "tasks", "view=oom&run=failed"],
  ["failure: recorded", "recorded", "view=oom&run=out_of_memory"],
  ["failure: small", "recorded", "view=oom&run=small"],
  ["failure: none", "samples", "view=oom&run=frozen"],
  [
    "failure: by age",
    "recorded",
    "view=oom&run=out_of_memory&colour=age",
    { since: "view=oom&run=out_of_memory" },
  ],
  [
    "failure: category",
    "recorded",
    "view=oom&run=out_of_memory&category=activations",
    { since: "view=oom&run=out_of_memory" },
  ],
  [
    "failure: request moved over chunks",
    "samples",
    "view=oom&run=died_fragmentation",
    { acts: [press(".request-chip", "ArrowRight", "ArrowRight", "ArrowLeft", "End")] },
  ],
  [
    "failure: download",
    "samples",
    "view=oom&run=died_fragmentation",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
  ["what if", "samples", "view=what-if&run=frozen"],
  ["what if: requests", "samples", "view=what-if&run=requests"],
  ["what if: failed", "tasks", "view=what-if&run=failed"],
  ["what if: recorded failure", "recorded", "view=what-if&run=out_of_memory"],
  ["what if: no requests", "samples", "view=what-if&run=growing"],
  [
    "what if: conditions typed",
    "recorded",
    "view=what-if&run=out_of_memory",
    { acts: [enter(".conditions input", "32"), press(".conditions input", "Enter")] },
  ],
  [
    "what if: keys over the curve",
    "recorded",
    "view=what-if&run=out_of_memory",
    { acts: [press(".plot", "ArrowRight")] },
  ],
  [
    "what if: download",
    "recorded",
    "view=what-if&run=out_of_memory",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
  ["what if: died", "samples", "view=what-if&run=died_fragmentation"],
  ["activations", "recorded", "view=activations&run=finished"],
  [
    "activations: two runs, by time",
    "recorded",
    "view=activations&run=finished&with=small&x=relative",
    { since: "view=activations&run=finished" },
  ],
  [
    "activations: keys",
    "recorded",
    "view=activations&run=finished",
    { acts: [press(".plot", "ArrowRight", "ArrowRight")] },
  ],
  ["activations: none", "samples", "view=activations&run=frozen"],
  [
    "activations: of a run without them",
    "recorded",
    "view=activations&run=out_of_memory&with=finished",
  ],
];

const PAIR = "view=compare&run=all_trainable&other=frozen";
const COMPARE: Case[] = [
  ["compare", "samples", PAIR],
  ["compare: swapped", "samples", PAIR, { acts: [click("[aria-label='Swap A and B']")] }],
  ["compare: all layers", "samples", `${PAIR}&all=1`, { since: PAIR }],
  ["compare: category selected", "samples", `${PAIR}&category=activations`, { since: PAIR }],
  ["compare: steps", "samples", `${PAIR}&step=60&other_step=120`, { since: PAIR }],
  [
    "compare: one run, two steps",
    "samples",
    "view=compare&run=frozen&other=frozen&step=120&other_step=235",
  ],
  ["compare: growing, by time", "samples", "view=compare&run=growing&other=frozen&x=relative"],
  ["compare: no phase in B", "samples", "view=compare&run=frozen&other=requests&phase=validation"],
  ["compare: exact", "samples", `${PAIR}&exact=1`, { since: PAIR }],
  ["compare: narrow", "samples", PAIR, { width: 360 }],
  [
    "compare: category hovered",
    "samples",
    PAIR,
    { acts: [point("tr.choosable", "mouseenter", 5, 5)] },
  ],
  ["compare: category clicked", "samples", PAIR, { acts: [click("tr.choosable")] }],
  ["compare: validation", "samples", `${PAIR}&phase=validation`],
  ["compare: keys", "samples", PAIR, { acts: [press(".plot", "ArrowRight", "Shift+ArrowRight")] }],
  [
    "compare: step of B entered",
    "samples",
    PAIR,
    { acts: [enter("[aria-label^='Step of B']", "60")] },
  ],
  ["compare: different models", "recorded", "view=compare&run=finished&other=out_of_memory"],
  [
    "compare: earlier optimizer",
    "tasks",
    "view=compare&run=unfrozen&other=unfrozen&step=25&other_step=33",
  ],
  ["compare: tasks", "tasks", "view=compare&run=failed&other=unfrozen"],
  [
    "compare: download",
    "tasks",
    "view=compare&run=failed&other=unfrozen",
    { acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")] },
  ],
];

const FAILED = "view=what-if&run=out_of_memory";
/** Of a server, which answers other questions, too. */
const LIVE: Case[] = [
  ["live: what if", "recorded", FAILED, { live: true, since: FAILED }],
  [
    "live: another batch size",
    "recorded",
    `${FAILED}&batch_size=64&capacity=2GiB`,
    { live: true, since: FAILED },
  ],
  [
    "live: conditions entered",
    "recorded",
    FAILED,
    {
      live: true,
      acts: [
        enter(".conditions input", "32"),
        press(".conditions input", "Enter"),
        press(".plot", "ArrowLeft", "Enter"),
      ],
    },
  ],
  [
    "live: budget entered",
    "recorded",
    FAILED,
    { live: true, acts: [enter(".budget input", "300MiB"), press(".budget input", "Enter")] },
  ],
  [
    "live: point of the plan's curve chosen",
    "recorded",
    FAILED,
    { live: true, acts: [point(".plan-dots [role='button']", "click", 0, 0)] },
  ],
  [
    "live: layer without totals",
    "samples",
    "view=layer&run=frozen&layer=block1_conv1&step=41",
    { live: true },
  ],
];

/** Questions that get errors. */
const ERRORS: Case[] = [
  ["error: no runs", "samples", "run=frozen", { refused: ["runs"], whole: true }],
  ["error: no overview", "samples", "run=frozen", { refused: ["overview"] }],
  [
    "error: no answers",
    "samples",
    "run=frozen",
    { refused: ["answers"], whole: true, since: "run=frozen" },
  ],
  [
    "error: no failures",
    "samples",
    "run=died_fragmentation",
    { refused: ["ooms"], since: "run=died_fragmentation" },
  ],
  ["error: no snapshots", "samples", "run=frozen", { refused: ["snapshot"], since: "run=frozen" }],
  [
    "error: layers without a trace",
    "samples",
    "view=layers&run=frozen",
    { refused: ["snapshot"], since: "view=layers&run=frozen" },
  ],
  [
    "error: layers without a table",
    "samples",
    "view=layers&run=frozen",
    { refused: ["layers"], since: "view=layers&run=frozen" },
  ],
  ["error: no totals", "samples", "view=frozen&run=frozen", { refused: ["ledgerTotals"] }],
  ["error: no timelines", "samples", "view=step&run=frozen", { refused: ["timelines"] }],
  ["error: no timeline", "samples", "view=step&run=frozen", { refused: ["timeline"] }],
  ["error: no pool", "samples", "view=fragmentation&run=frozen", { refused: ["pool"] }],
  [
    "error: no map",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    { refused: ["map"], since: "view=fragmentation&run=frozen&step=163" },
  ],
  [
    "error: no maps, no device memory",
    "samples",
    "view=fragmentation&run=frozen",
    { refused: ["maps", "deviceMemory", "demand"], since: "view=fragmentation&run=frozen" },
  ],
  ["error: no host memory", "samples", "view=host&run=frozen", { refused: ["hostMemory"] }],
  ["error: no devices", "devices", "view=devices", { refused: ["devices"] }],
  [
    "error: failure without advice",
    "samples",
    "view=oom&run=died_fragmentation",
    { refused: ["fixes", "map"], since: "view=oom&run=died_fragmentation" },
  ],
  ["error: no what if", "samples", "view=what-if&run=frozen", { refused: ["whatIf"] }],
  ["error: no plan", "samples", "view=what-if&run=requests", { refused: ["plan"] }],
  ["error: no layers to compare", "samples", PAIR, { refused: ["layers"], since: PAIR }],
  ["error: no traces to compare", "samples", PAIR, { refused: ["snapshot"], since: PAIR }],
  [
    "error: no activations",
    "recorded",
    "view=activations&run=finished",
    { refused: ["activations"] },
  ],
];

export const OF_RUNS: Case[] = [...OTHERS, ...COMPARE, ...LIVE, ...ERRORS];

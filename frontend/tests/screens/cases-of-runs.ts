/** Views of a run as a whole: host, devices, failures, predictions, comparisons. */

import { user, type Case } from "./harness";

const { click, press, enter } = user;

const OTHERS: Case[] = [
  ["host", "samples", "view=host&run=frozen"],
  ["host: growing", "samples", "view=host&run=growing"],
  ["host: keys, step", "samples", "view=host&run=frozen&step=30", { acts: [press(".plot", "ArrowRight", "ArrowRight")] }],
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
    { acts: [press("[aria-label='Table of devices']", "ArrowDown", "ArrowDown", "ArrowUp")] },
  ],
  ["devices: row clicked", "devices", "view=devices", { acts: [click("[data-testid='devices'] tbody tr[data-device]")] }],
  ["devices: keys over a chart", "devices", "view=devices", { acts: [press(".plot", "ArrowRight", "ArrowRight")] }],
  [
    "devices: download",
    "devices",
    "view=devices",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
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
    { acts: [press(".request-chip", "ArrowRight", "ArrowRight", "ArrowLeft", "End")] },
  ],
  [
    "failure: download",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
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
      acts: [enter(".conditions input", "32"), press(".conditions input", "Enter")],
    },
  ],
  ["what if: keys over the curve", "recorded", "view=what-if&run=out_of_memory", { acts: [press(".plot", "ArrowRight")] }],
  [
    "what if: download",
    "recorded",
    "view=what-if&run=out_of_memory",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
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
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
    },
  ],
  ["activations", "recorded", "view=activations&run=finished"],
  [
    "activations: two runs, by time",
    "recorded",
    "view=activations&run=finished&with=small&x=relative",
    { since: "view=activations&run=finished" },
  ],
  ["activations: keys", "recorded", "view=activations&run=finished", { acts: [press(".plot", "ArrowRight", "ArrowRight")] }],
  ["activations: none", "samples", "view=activations&run=frozen"],
  ["activations: of a run without them", "recorded", "view=activations&run=out_of_memory&with=finished"],
];

const PAIR = "view=compare&run=all_trainable&other=frozen";
const COMPARE: Case[] = [
  ["compare", "samples", PAIR],
  ["compare: swapped", "samples", PAIR, { acts: [click("[aria-label='Swap A and B']")] }],
  ["compare: all layers", "samples", `${PAIR}&all=1`, { since: PAIR }],
  ["compare: layer selected", "samples", `${PAIR}&layer=vgg%2Fblock5_conv1`, { since: PAIR }],
  ["compare: category selected", "samples", `${PAIR}&category=activations`, { since: PAIR }],
  ["compare: steps", "samples", `${PAIR}&step=60&other_step=120`, { since: PAIR }],
  ["compare: one run, two steps", "samples", "view=compare&run=frozen&other=frozen&step=120&other_step=235"],
  ["compare: growing, by time", "samples", "view=compare&run=growing&other=frozen&x=relative"],
  ["compare: no phase in B", "samples", "view=compare&run=frozen&other=requests&phase=validation"],
  ["compare: exact", "samples", `${PAIR}&exact=1`, { since: PAIR }],
  ["compare: narrow", "samples", PAIR, { width: 360 }],
  ["compare: keys", "samples", PAIR, { acts: [press(".plot", "ArrowRight", "Shift+ArrowRight")] }],
  ["compare: step of B entered", "samples", PAIR, { acts: [enter("[aria-label^='Step of B']", "60")] }],
  ["compare: different models", "recorded", "view=compare&run=finished&other=out_of_memory"],
  ["compare: tasks", "tasks", "view=compare&run=failed&other=unfrozen"],
  [
    "compare: download",
    "tasks",
    "view=compare&run=failed&other=unfrozen",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
    },
  ],
];

export const OF_RUNS: Case[] = [...OTHERS, ...COMPARE];

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
  [
    "host: growing",
    "samples",
    "view=host&run=growing",
    {
      shows: [
        "fill pattern ffb9: 11 points, 359 275.5 to 932.5 281, 33d461b4",
        "fill pattern ae22: 16 points, 87 29 to 932.5 29, 4d4a8d74",
      ],
    },
  ],
  [
    "host: validation",
    "samples",
    "view=host&run=frozen&phase=validation",
    {
      shows: [
        "fill pattern ae22: rect 362.5 29 143.5 252",
        "fill pattern 252a: rect 362.5 281 143.5 9",
        'tr .zero data-figure="cpu_bytes" data-bytes="0" data-tip="0 B | allocated on CPU',
      ],
    },
  ],
  [
    "host: keys, step",
    "samples",
    "view=host&run=frozen&step=30",
    {
      acts: [press(".plot", "ArrowRight", "ArrowRight")],
      shows: [
        'header .panel-head: h2 data-step="… 30": Step 30 → 31": Step 31',
        'tr data-figure="host_resident_bytes" data-bytes="1468006400" d… 30 → 31',
        '29px, 290px);" role="sli… hos… → host RSS 1.4 GiB',
        'xt="step 30: host RSS 1.4 GiB" → 31" aria-valuetext="step 31: host RSS 1.4 GiB',
      ],
    },
  ],
  [
    "host: by time",
    "samples",
    "view=host&run=frozen&x=wall",
    {
      since: "view=host&run=frozen",
      shows: [
        'text "14:13:30" #5f6368 12px center top: 135 286',
        'text "14:13:45" #5f6368 12px center top: 221 286',
      ],
    },
  ],
  ["host: recorded", "recorded", "view=host&run=out_of_memory"],
  [
    "host: small",
    "recorded",
    "view=host&run=small",
    {
      shows: [
        'header .panel-head: h2 data-step="59": Step 59 | button .unit aria-pressed="fals',
        'tr data-figure="cpu_bytes" data-bytes="208666683" data-tip="199 MiB | allocated',
        'tr data-figure="tf_data_bytes" data-bytes="" data-tip="unknown | elements in buf',
        '.plot role="slider" tabindex="0" aria-label="Resident memory of the training pro',
      ],
    },
  ],
  ["devices", "devices", "view=devices"],
  [
    "devices: all columns",
    "devices",
    "view=devices&columns=1",
    { since: "view=devices", shows: ['data-figure="headroom_bytes" data-bytes="498864896"'] },
  ],
  [
    "devices: by worker",
    "devices",
    "view=devices&devices=device",
    {
      since: "view=devices",
      shows: ['tr .subtotal data-worker="worker_0": colspan="3" title="worker_0: steps 0–119'],
    },
  ],
  [
    "devices: by headroom",
    "devices",
    "view=devices&devices=headroom_bytes",
    { since: "view=devices" },
  ],
  [
    "devices: searched",
    "devices",
    "view=devices&search=worker_1",
    { since: "view=devices", shows: ["table .layers aria-rowcount="] },
  ],
  [
    "devices: device selected",
    "devices",
    "view=devices&devices=device&device=worker_0%2FGPU%3A2",
    {
      since: "view=devices&devices=device",
      shows: [
        'button .layer-name aria-pressed="… false → true',
        'button .layer-name aria-pressed="false": GPU:1',
        'tr … .device-row → .device-row.selected aria-current="true"',
        'tr .device-row data-device="worker_1/GPU:1" data-tip="1 GiB | worker_1/GP',
      ],
    },
  ],
  [
    "devices: step",
    "devices",
    "view=devices&step=30",
    {
      since: "view=devices",
      shows: [
        'peak 1.0 GiB, lowest peak 590 → 30": step 30: highest peak 1.0 GiB, lowest pe',
        'st peak 1 GiB, lowest peak 590 → 30" aria-valuetext="step 30: highest peak 1 G',
      ],
    },
  ],
  [
    "devices: category",
    "devices",
    "view=devices&category=weights",
    {
      since: "view=devices",
      shows: [
        'button .legend-item aria-pressed="… false → true',
        "i … .fill.hatched → .fill.hatched.pale",
      ],
    },
  ],
  ["devices: validation", "devices", "view=devices&phase=validation", { since: "view=devices" }],
  [
    "devices: exact",
    "devices",
    "view=devices&exact=1",
    {
      since: "view=devices",
      shows: ["table … .layers → .layers.exact", '"peak_bytes" data-bytes=… 0.73 → 786,848,512'],
    },
  ],
  [
    "devices: keys in the table",
    "devices",
    "view=devices&devices=device",
    {
      acts: [press("[aria-label='Table of devices']", "ArrowDown", "ArrowDown", "ArrowUp")],
      shows: [
        'n" aria-label="Table of devi…  →  focused',
        'data-tip="750 MiB | worker_1/ → .device-row.selected data-device="worker_1/GP',
      ],
    },
  ],
  [
    "devices: legend clicked",
    "devices",
    "view=devices",
    { acts: [click("button.legend-item")], shows: ["i … .fill.dotted → .fill.dotted.pale"] },
  ],
  [
    "devices: worker clicked",
    "devices",
    "view=devices",
    {
      acts: [click("[aria-label^='Workers to look'] button")],
      shows: [
        'data-tip="750 MiB | worker_1/ → .device-row.selected data-device="worker_1/GP',
        'select value="…  → worker_1/GPU:0',
      ],
    },
  ],
  [
    "devices: list scrolled",
    "devices",
    "view=devices&devices=device",
    {
      acts: [scroll("[aria-label='Table of devices']", 280)],
      shows: [
        'tr style="height: 56px;"',
        '36%;" data-pa… worker_0/GPU:0, → worker_0/GPU:1,',
        'tr .device-row data-device="worker_0/GPU:1" data-tip="750 MiB | worker_0/',
      ],
    },
  ],
  [
    "devices: sorted by a header",
    "devices",
    "view=devices",
    {
      acts: [click("[data-testid='devices'] thead .column-device button")],
      shows: ['tr .subtotal data-worker="worker_1"'],
    },
  ],
  [
    "devices: row clicked",
    "devices",
    "view=devices&devices=device",
    {
      acts: [click("[data-testid='devices'] tbody tr[data-device]")],
      shows: [
        'data-tip="750 MiB | worker_0/ → .device-row.selected data-device="worker_0/GP',
        'select value="…  → worker_0/GPU:0',
      ],
    },
  ],
  [
    "devices: keys over a chart",
    "devices",
    "view=devices",
    {
      acts: [press(".plot", "ArrowRight", "ArrowRight")],
      shows: [
        '… 60" aria-valuetext="step 60: → 61" aria-valuetext="step 61:',
        'st peak 590 MiB, sum in use at → 61": step 61: highest peak 1.0 GiB, lowest pe',
        'k 1 GiB, lowest peak 590 MiB,  → 61" aria-valuetext="step 61: highest peak 1 G',
      ],
    },
  ],
  [
    "devices: download",
    "devices",
    "view=devices",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        "worker_1/GPU:1,worker_1,1610612736,1111747840,6,440278220,498864896,1610612736,0",
        "worker_0/GPU:0,worker_0,1610612736,786848512,6,312235929,823764224,1073741824,0,",
      ],
    },
  ],
  ["failure", "samples", "view=oom&run=died_fragmentation"],
  [
    "failure: request of a compiled module",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      since: "view=oom&run=died_fragmentation",
      failure: COMPILED,
      shows: [
        "thead: tr: count | shape | dtype | size, MiB | layers",
        ".held-by: net, layer_normalization_3",
        "summary: Inside the request, by tensor",
        ".held-by: multi_head_attention",
      ],
    },
  ],
  [
    "failure: task",
    "tasks",
    "view=oom&run=failed",
    {
      shows: [
        "fillRect pattern 089f: 384 0 271 30",
        ".strip.strip-axis",
        "section .blocking: h3: Chunks that split free memory | p .small: No chunk in use",
        '.track: i .peak style="width: 78.92%;" | i .range style="left: 75.77%…" | i .lim',
      ],
    },
  ],
  ["failure: recorded", "recorded", "view=oom&run=out_of_memory"],
  [
    "failure: small",
    "recorded",
    "view=oom&run=small",
    {
      shows: [
        "fillRect pattern 89dd: 0 0 720 30",
        "h1 .unseen: Memory of small",
        'i .fill.dotted style="width: 0%; --fill: #8e939b;" data-figure="rounding" data-b',
        'i .fill.plain style="width: 24.51%; --fill: #cf8002;" data-figure="activations"',
      ],
    },
  ],
  [
    "failure: none",
    "samples",
    "view=oom&run=frozen",
    {
      shows: [
        'pre tabindex="0": <code: tb-memplugin import training.log --logdir runs>',
        "h2: No step of frozen ran out of memory",
        "p: For a job that failed without them, import its log or its dump (<code: TF_BFC",
        "p: If a step fails under <code: tb_memplugin.MemoryCallback> or <code: tb_memplu",
      ],
    },
  ],
  [
    "failure: by age",
    "recorded",
    "view=oom&run=out_of_memory&colour=age",
    {
      since: "view=oom&run=out_of_memory",
      shows: [
        'ul .map-legend aria-label="Legend of the memory map"',
        "33 times fillRect, … 0332066c → 97be53f8",
      ],
    },
  ],
  [
    "failure: category",
    "recorded",
    "view=oom&run=out_of_memory&category=activations",
    { since: "view=oom&run=out_of_memory", shows: ["fillRect pattern … e03a: → 08aa:"] },
  ],
  [
    "failure: request moved over chunks",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      acts: [press(".request-chip", "ArrowRight", "ArrowRight", "ArrowLeft", "End")],
      shows: [
        'i .strip-request.fails style="left: 96.88%; width: 68.58%;"',
        '": <small: Drag over the map.> → false" role="status": Too small: 2.3 MiB free',
        'e enough: the largest free chu → 56" aria-valuetext="Too small: 2.3 MiB free,',
      ],
    },
  ],
  [
    "failure: download",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        "layer,category,trainable,bytes,rounding_bytes",
        "vgg/block1_conv2,activation_gradients,true,8388608,0",
      ],
    },
  ],
  ["what if", "samples", "view=what-if&run=frozen"],
  ["what if: requests", "samples", "view=what-if&run=requests"],
  ["what if: failed", "tasks", "view=what-if&run=failed"],
  ["what if: recorded failure", "recorded", "view=what-if&run=out_of_memory"],
  [
    "what if: no requests",
    "samples",
    "view=what-if&run=growing",
    { shows: ["h2: No recorded requests of growing on CPU:0"] },
  ],
  [
    "what if: conditions typed",
    "recorded",
    "view=what-if&run=out_of_memory",
    {
      acts: [enter(".conditions input", "32"), press(".conditions input", "Enter")],
      shows: ['.condition.batch_size: .condition-head: label for="condition-batc…  → 32'],
    },
  ],
  [
    "what if: keys over the curve",
    "recorded",
    "view=what-if&run=out_of_memory",
    { acts: [press(".plot", "ArrowRight")], shows: ['aria-label="Predicted peak o…  →  focused'] },
  ],
  [
    "what if: download",
    "recorded",
    "view=what-if&run=out_of_memory",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        "encoder/block2_attention,workspace,true,,25165824,8388608",
        "encoder/block1_narrow,activations,true,,12582912,4194304",
        "encoder/block1_attention,activations,true,,213909504,71303168",
      ],
    },
  ],
  [
    "what if: died",
    "samples",
    "view=what-if&run=died_fragmentation",
    { shows: ["h2: No recorded requests of died_fragmentation on CPU:0"] },
  ],
  ["activations", "recorded", "view=activations&run=finished"],
  [
    "activations: two runs, by time",
    "recorded",
    "view=activations&run=finished&with=small&x=relative",
    {
      since: "view=activations&run=finished",
      shows: [
        'text "-0.2 s" #5f6368 12px center top: 105 300',
        'text "0.2 s" #5f6368 12px center top: 334 300',
      ],
    },
  ],
  [
    "activations: keys",
    "recorded",
    "view=activations&run=finished",
    {
      acts: [press(".plot", "ArrowRight", "ArrowRight")],
      shows: [
        '.figure aria-label="… 200 B": 200 → 300 B": 300',
        'etext="step 0: 110 B in total" → 1" aria-valuetext="step 1: 320 B in total" fo',
        '.unit aria-pressed="false" tit → 1": Step 1<why: > | button .unit aria-pressed',
        'ecorded activation bytes | rec → 300" data-tip="300 B | model/backbone: record',
      ],
    },
  ],
  ["activations: none", "samples", "view=activations&run=frozen"],
  [
    "activations: of a run without them",
    "recorded",
    "view=activations&run=out_of_memory&with=finished",
    { shows: [".nothing: h2: out_of_memory has no recorded activations | p: Record them with <c"] },
  ],
];

const PAIR = "view=compare&run=all_trainable&other=frozen";
const COMPARE: Case[] = [
  ["compare", "samples", PAIR],
  ["compare: swapped", "samples", PAIR, { acts: [click("[aria-label='Swap A and B']")] }],
  [
    "compare: all layers",
    "samples",
    `${PAIR}&all=1`,
    { since: PAIR, shows: ['.number data-tip="0 B | B − A: total…": ±0'] },
  ],
  [
    "compare: category selected",
    "samples",
    `${PAIR}&category=activations`,
    {
      since: PAIR,
      shows: [
        'rect x="110.4" width="67.2" y="40.54" height="9.15" fill="url… 1 → 0.3',
        '"activations" data-from="127927552" data-to="… .choosable → .choosable.focused aria-current="true"',
      ],
    },
  ],
  ["compare: steps", "samples", `${PAIR}&step=60&other_step=120`, { since: PAIR }],
  [
    "compare: one run, two steps",
    "samples",
    "view=compare&run=frozen&other=frozen&step=120&other_step=235",
    {
      shows: [
        'select aria-label="Run A" title="frozen" value="frozen"',
        'text x="660" y="211" fill="#5f6368": weight gradients',
        'text x="180" y="211" fill="#5f6368": weights, frozen',
        'text x="420" y="211" fill="#5f6368": optimizer state',
      ],
    },
  ],
  [
    "compare: one run, no step chosen",
    "samples",
    "view=compare&run=frozen&other=frozen",
    {
      shows: [
        "<segments-label: B>",
        'input min="0" placeholder="200" aria-label="Step of B; empty',
        '.small data-step="41"',
        "h2 .verdict: B needs 50.5 MiB more than A. 18.0 MiB of weights became trainable.",
      ],
    },
  ],
  ["compare: growing, by time", "samples", "view=compare&run=growing&other=frozen&x=relative"],
  [
    "compare: no phase in B",
    "samples",
    "view=compare&run=frozen&other=requests&phase=validation",
    {
      shows: [
        '.segments role="group" aria-label="phase": button aria-pressed="false": train |',
        ".nothing: h2: Nothing to compare | p: requests has no validation step. Choose an",
        'p .step-note.small aria-live="polite" title="No validation step was traced; brea',
      ],
    },
  ],
  [
    "compare: exact",
    "samples",
    `${PAIR}&exact=1`,
    {
      since: PAIR,
      shows: [
        '.number data-bytes="6292736": … 6.0 → 6,292,736',
        '.number data-bytes="9603092": … 9.2 → 9,603,092',
      ],
    },
  ],
  ["compare: narrow", "samples", PAIR, { width: 360 }],
  [
    "compare: category hovered",
    "samples",
    PAIR,
    {
      acts: [point("tr.choosable", "mouseenter", 5, 5)],
      shows: [
        'rect x="206.4" width="67.2" y="40.54" height="9.15" fill="#38… 1 → 0.3',
        'rect x="782.4" width="67.2" y="110.43" height="1.5" fill="#5f… 1 → 0.3',
      ],
    },
  ],
  [
    "compare: category clicked",
    "samples",
    PAIR,
    {
      acts: [click("tr.choosable")],
      shows: [
        'rect x="302.4" width="67.2" y="49.68" height="18.3" fill="#9c… 1 → 0.3',
        'rect x="398.4" width="67.2" y="67.98" height="59.37" fill="#c… 1 → 0.3',
        'rect x="494.4" width="67.2" y="127.35" height="4.57" fill="#b… 1 → 0.3',
        'rect x="590.4" width="67.2" y="131.92" height="15.35" fill="#… 1 → 0.3',
      ],
    },
  ],
  [
    "compare: validation",
    "samples",
    `${PAIR}&phase=validation`,
    {
      shows: [
        'text x="400" y="211" fill="#5f6368": weights, trainable',
        'g text-anchor="middle" fill="#202124" data-figure="unattributed" data-bytes="-52',
        'tr hidden="" data-figure="activations" data-from="0" data-to="0" data-tip="A 0 B',
        'tr hidden="" data-figure="rounding" data-from="0" data-to="0" data-tip="A 0 B, B',
      ],
    },
  ],
  [
    "compare: keys",
    "samples",
    PAIR,
    {
      acts: [press(".plot", "ArrowRight", "Shift+ArrowRight")],
      shows: [
        '2.79px, 290px);" role="sl… pe… → peak 284 MiB; activations 122 MiB; optimizer',
        'MiB; activations 122 MiB; opti → 190" aria-valuetext="step 190: peak 283 MiB;',
      ],
    },
  ],
  [
    "compare: step of B entered",
    "samples",
    PAIR,
    {
      acts: [enter("[aria-label^='Step of B']", "60")],
      shows: [
        '.number data-bytes="… 4985856 → 4986368',
        '.small data-step="… 200" → 60": breakdown from step 41',
        ".shape: unattributed … ▼ → ▲",
        "h2 .verdict: B needs … 119 MiB less than A",
      ],
    },
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
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        ",Adam replaced at step 30/model/head,only in B,,58720256,58720256",
        "layer_a,layer_b,matched,bytes_a,bytes_b,delta_bytes",
        ",model/backbone,only in B,,364710144,364710144",
        "net/conv1,,only in A,90537728,,-90537728",
      ],
    },
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
    {
      live: true,
      since: FAILED,
      shows: [
        'conditions only. Other condit → button .quiet style="visibility: visible;": R',
        'recorded" disabled="" value=" → such as 24GiB" title="Empty: as recorded" val',
        'recorded" disabled="" value=" → as recorded" title="Empty: as recorded" value',
      ],
    },
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
      shows: [
        'aria-label="Predicted peak o…  →  focused',
        'ct | svg: path d="" … hidden=" → style="transform: t…',
        "p … .curve-point → .curve-point: batch size 96: 849 MiB (745 MiB",
        'e="Empty: as recorded" value=" → as recorded" title="Empty: as recorded" value',
      ],
    },
  ],
  [
    "live: budget entered",
    "recorded",
    FAILED,
    {
      live: true,
      acts: [enter(".budget input", "300MiB"), press(".budget input", "Enter")],
      shows: [
        'button .quiet style="visibility: … hidden; → visible;',
        'bel for="condition-budget":… " → 300MiB" focused',
      ],
    },
  ],
  [
    "live: point of the plan's curve chosen",
    "recorded",
    FAILED,
    {
      live: true,
      acts: [point(".plan-dots [role='button']", "click", 0, 0)],
      shows: ['abel for="condition-budget":…  → 1054082848B'],
    },
  ],
  [
    "live: layer without totals",
    "samples",
    "view=layer&run=frozen&layer=block1_conv1&step=41",
    {
      live: true,
      shows: [
        '.plot role="slider" tabindex="0" aria-label="Bytes of block1_conv1 by category a',
        "p .small: block1_conv1 · Conv2D · frozen · 1,792 parameters · output (batch, 64,",
      ],
    },
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
    {
      refused: ["answers"],
      whole: true,
      since: "run=frozen",
      shows: ['section .answers aria-label="Answers" aria-busy="false": .tile.blank role="st'],
    },
  ],
  [
    "error: no failures",
    "samples",
    "run=died_fragmentation",
    {
      refused: ["ooms"],
      since: "run=died_fragmentation",
      shows: ['.segments role="group" aria-label="x-axis": button aria-pressed="t'],
    },
  ],
  [
    "error: no snapshots",
    "samples",
    "run=frozen",
    {
      refused: ["snapshot"],
      since: "run=frozen",
      shows: [
        'tbody: tr .blank: colspan="3" title="No answer: snapshot.": No answer: s',
        'ul .findings aria-label="Findings": li .frozen: button title="Sho',
      ],
    },
  ],
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
    {
      refused: ["layers"],
      since: "view=layers&run=frozen",
      shows: [
        '.area-parts: i .fill.plain style="--fill: #cf8…"',
        ".area-parts: i … .fill.diagonal → .fill.plain",
      ],
    },
  ],
  [
    "error: no totals",
    "samples",
    "view=frozen&run=frozen",
    {
      refused: ["ledgerTotals"],
      shows: ['.fault role="alert": p: No answer: ledgerTotals. | button: Try again'],
    },
  ],
  [
    "error: no timelines",
    "samples",
    "view=step&run=frozen",
    {
      refused: ["timelines"],
      shows: ['.fault role="alert": p: No answer: timelines. | button: Try again'],
    },
  ],
  [
    "error: no timeline",
    "samples",
    "view=step&run=frozen",
    {
      refused: ["timeline"],
      shows: [
        '.fault role="alert": p: No answer: timeline. | button: Try again',
        ".timeline-alone",
      ],
    },
  ],
  [
    "error: no pool",
    "samples",
    "view=fragmentation&run=frozen",
    { refused: ["pool"], shows: ['.fault role="alert": p: No answer: pool. | button: Try again'] },
  ],
  [
    "error: no map",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      refused: ["map"],
      since: "view=fragmentation&run=frozen&step=163",
      shows: ['.fault role="alert": p: No answer: map. | button: Try again'],
    },
  ],
  [
    "error: no maps, no device memory",
    "samples",
    "view=fragmentation&run=frozen",
    {
      refused: ["maps", "deviceMemory", "demand"],
      since: "view=fragmentation&run=frozen",
      shows: [
        'section .device-memory aria-label="Device memory": h2: Memory of CPU:0',
        's="805306368" data-tip="76… p… → pool: the allocator may still reserve it',
        ': Memory map | p .small: Unkno → .fault role="alert": p: No answer: maps. | bu',
        'p .legend: .legend-item: i .key.line.colour style="--key: #b94f06',
      ],
    },
  ],
  [
    "error: no host memory",
    "samples",
    "view=host&run=frozen",
    {
      refused: ["hostMemory"],
      shows: ['.fault role="alert": p: No answer: hostMemory. | button: Try again'],
    },
  ],
  [
    "error: no devices",
    "devices",
    "view=devices",
    {
      refused: ["devices"],
      shows: ['.fault role="alert": p: No answer: devices. | button: Try again'],
    },
  ],
  [
    "error: failure without advice",
    "samples",
    "view=oom&run=died_fragmentation",
    {
      refused: ["fixes", "map"],
      since: "view=oom&run=died_fragmentation",
      shows: [
        '.fault role="alert": p: No answer: map. | button: Try again',
        'whole step was traced before.  → .fault role="alert": p: No answer: fixes. | b',
        "dl .facts: dt: time | dd: 2026-09-21 14:14:53 | dt: operation |",
      ],
    },
  ],
  [
    "error: no what if",
    "samples",
    "view=what-if&run=frozen",
    {
      refused: ["whatIf"],
      shows: [
        '.fault role="alert": p: No answer: whatIf. | button: Try again',
        '.condition.capacity: .condition-head: label for="condition-capacity": capacity |',
        '.condition.batch_size: .condition-head: label for="condition-batch_size": batch',
      ],
    },
  ],
  [
    "error: no plan",
    "samples",
    "view=what-if&run=requests",
    {
      refused: ["plan"],
      shows: ['.plan-head: .fault role="alert": p: No answer: plan. | button: Try again'],
    },
  ],
  [
    "error: no layers to compare",
    "samples",
    PAIR,
    { refused: ["layers"], since: PAIR, shows: ['title="vgg/block4_conv2": block4_conv2'] },
  ],
  [
    "error: no traces to compare",
    "samples",
    PAIR,
    {
      refused: ["snapshot"],
      since: PAIR,
      shows: [
        '.number data-tip="-14 KiB | B − A: total…": ▼ −0.01',
        '.number data-tip="-577 KiB | B − A: total…": ▼ −0.56',
        ".shape: … activations ▼ −8.0 → optimizer state ▼ −4.5",
        ".shape: … workspace ▲ +36.0 → optimizer state ▼ −0.28",
      ],
    },
  ],
  [
    "error: no activations",
    "recorded",
    "view=activations&run=finished",
    {
      refused: ["activations"],
      shows: ['.fault role="alert": p: No answer: activations. | button: Try again'],
    },
  ],
];

export const OF_RUNS: Case[] = [...OTHERS, ...COMPARE, ...LIVE, ...ERRORS];

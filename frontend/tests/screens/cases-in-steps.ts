/** Views of what happens inside of steps: timelines, memory maps. */

import { user, type Case } from "./harness";

const { click, press, enter, point, drag, scroll } = user;

const STEP = "view=step&run=frozen";
const OOM_STEP = "view=step&run=out_of_memory";
const STEPS: Case[] = [
  ["step", "samples", STEP],
  [
    "step: by category",
    "samples",
    `${STEP}&stack=category`,
    {
      since: STEP,
      shows: [
        "fill pattern 0874: 130 points, 76 63 to 936 290, e7043541",
        "fill pattern eea7: 130 points, 76 67 to 936 290, 2e1875f1",
        "fill pattern e03a: 130 points, 76 67 to 936 290, 2e1875f1",
        "fill pattern 307c: 130 points, 76 166 to 936 290, cb545fbd",
      ],
    },
  ],
  [
    "step: by layer",
    "samples",
    `${STEP}&stack=layer`,
    {
      since: STEP,
      shows: [
        '.figure aria-label="… 512 KiB": 0.50 → 4.5 MiB": 4.5',
        '.swatch.plain style="--fill: hsl(95 68% 38%);" | <label: block3_conv1>',
      ],
    },
  ],
  [
    "step: by category, layer selected",
    "samples",
    `${STEP}&stack=category&layer=vgg%2Fblock5_conv1`,
    {
      since: `${STEP}&stack=category`,
      shows: ['button .layer-name aria-pressed="true": block5_conv1'],
    },
  ],
  [
    "step: tensors by layer",
    "samples",
    `${STEP}&tensor_colour=layer`,
    {
      since: STEP,
      shows: [
        '#839a6d;" | <label: workspace> → hsl(190 68% 33%);" | <label: block3_conv2>',
        'f8002;" | <label: activations> → hsl(275 68% 38%);" | <label: block5_conv2>',
        ';" | <label: weight gradients> → hsl(340 68% 33%);" | <label: block4_conv2>',
        '| <label: weights, trainable> → hsl(215 68% 33%);" | <label: block1_conv2>',
      ],
    },
  ],
  [
    "step: by event",
    "samples",
    `${STEP}&timeline=event+index`,
    { since: STEP, shows: ['a-grip="both" rol… ms to 32 ms → to 64', 'text "… 10 ms → 20'] },
  ],
  [
    "step: moment and tensor selected",
    "samples",
    `${STEP}&moment=20&tensor=30`,
    {
      since: STEP,
      shows: [
        '.shape: button .operation aria-pressed="… false → true',
        'tr … data-row= → .tensor-row aria-current="true" data-row=',
        'utton .leads: vgg/block5_conv1 → block1_conv1": button .leads: block1_conv1',
        'ep": allocated before the step → block1_conv1/workspace": block1_conv1/workspa',
      ],
    },
  ],
  [
    "step: category selected",
    "samples",
    `${STEP}&category=activations`,
    {
      since: STEP,
      shows: [
        'button .layer-name aria-pressed="false": … block1_conv2 → head',
        'button aria-pressed="… false → true',
        ".small.one-line: 4 of 54, 6.0 MiB",
        "button .quiet: Clear category ×",
      ],
    },
  ],
  [
    "step: layer selected",
    "samples",
    `${STEP}&layer=vgg%2Fblock5_conv1`,
    {
      since: STEP,
      shows: [
        "button .quiet: Clear layer ×",
        'ressed="… false": block1_conv2 → true": block5_conv1',
        'lse": … block1_conv2/workspace → block5_conv1/activation_gradients',
        '-fill: … #839a6d;" | workspace → #ba0603;" | activation gradients',
      ],
    },
  ],
  [
    "step: zoomed",
    "samples",
    `${STEP}&span=20-30`,
    {
      since: STEP,
      shows: [
        "column 344: nothing … 65, pattern 5616 1, pattern e03a 4, → 70,",
        "column 172: nothing … 131, → 81, pattern 5616 1, pattern e03a 5, pattern 5",
        "column 17: nothing … 154, → 92, pattern 5616 1, pattern e03a 5, pattern 5",
        "ern 5616 1, pattern e03a 5, pa → 59, pattern 5616 1, pattern e03a 5, pattern 5",
      ],
    },
  ],
  [
    "step: span selected",
    "samples",
    `${STEP}&selected=10-30`,
    {
      since: STEP,
      shows: [
        '.swatch.plain style="--fill: #839a6d;" | workspace',
        'tr data-group="workspace"',
        'p .small: data-figure="peak" data-bytes="169070336" data-tip="161 MiB": Pea',
        'li data-tensor="30" data-bytes="4194304": button aria-pressed="false" ti',
      ],
    },
  ],
  [
    "step: one moment as span",
    "samples",
    `${STEP}&selected=10-10`,
    {
      since: STEP,
      shows: [
        'h3: Selected span: 5 ms to 5 ms | .tensor-tools: button .quiet disabled="":',
        'tr data-group="total": total | .number data-figure="allocated" data-byte',
        'ol .largest: li data-tensor="26" data-bytes="525312": button aria-pressed',
      ],
    },
  ],
  ["step: survivors", "samples", `${STEP}&survived=1`, { since: STEP }],
  [
    "step: searched",
    "samples",
    `${STEP}&search=block4`,
    {
      since: STEP,
      shows: [
        'egex)" aria-label="Search li…  → block4',
        ".small.one-line: … 54 of 54, 165 → 3 of 54, 17.5",
      ],
    },
  ],
  [
    "step: exact",
    "samples",
    `${STEP}&exact=1`,
    {
      since: STEP,
      shows: [
        '.figure aria-label="36.6 MiB": … 36.6 → 38,412,368',
        '.figure aria-label="18.3 MiB": … 18.3 → 19,206,184',
      ],
    },
  ],
  [
    "step: without a timeline",
    "samples",
    "view=step&run=growing",
    { shows: ["h2: No train step of this run was traced on this device"] },
  ],
  [
    "step: validation",
    "samples",
    `${STEP}&phase=validation`,
    {
      shows: [
        "h2: No validation step of this run was traced on this device",
        "p: Step timelines come from traced steps. Tracing is off with <code: overhead=0>",
      ],
    },
  ],
  ["step: first one", "samples", `${STEP}&step=3`, { since: STEP }],
  [
    "step: keys",
    "samples",
    STEP,
    {
      acts: [press(".plot", "ArrowRight", "Shift+ArrowRight", "Enter", "+", "d")],
      shows: [
        'text "update" #202124 11px center middle: 855.5 20',
        '.figure aria-label="… 1.1 KiB → 924 B',
        'ria-expanded="false": 5 o… 2.3 → 0.25',
        '.u-over style="left: 76px; …": .u-select | svg: path d="" | path d=""',
      ],
    },
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
    {
      acts: [point(".u-over", "mousemove", 400, 200)],
      shows: ['| svg: path d="" | … hidden=" → style="transform: translateX(389.69px);'],
    },
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
      shows: [
        '.tip style="transform: translate(14px, 14px);": 9.0 MiBvgg/block5_conv2: w',
        'e" data-bytes="19206184" data- → .focused.choosable data-figure="weights:train',
        'peak: 165 MiB in use; workspa → 22" aria-valuetext="at 11 ms, forward: 129 Mi',
        'ch as Adam\'s two moments": but → layer variables: elements × dtype size": butt',
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
      shows: [
        'text "peak 165 MiB" #202124 50011px left middle: … 502.5 → 585.5',
        "column 17: nothing … 154, → 125, pattern 5616 1, pattern e03a 5, pattern",
        "column 172: nothing … 131, → 92, pattern 5616 1, pattern e03a 5, pattern 5",
        '"scrollbar" tabindex="0" aria- → 22.34%; width: 44.93%;" data-grip="both" role',
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
      shows: [
        "column 688: nothing … 88, → 83, pattern 5616 1, pattern e03a 4,",
        "column 17: nothing … 154, → 138, pattern 5616 1, pattern cd66 4, pattern",
        "column 842: nothing … 149, → 132, pattern 5616 1, pattern e03a 5, pattern",
        "column 344: nothing … 65, → 43, pattern 5616 1, pattern e03a 4, pattern 5",
      ],
    },
  ],
  [
    "step: list scrolled",
    "samples",
    STEP,
    {
      acts: [scroll(".layer-scroll", 600)],
      shows: [
        '.shape: button .operation aria-pressed="false": data/inputs',
        '.shape: button .operation aria-pressed="false": allocations unknown',
        ".number: 500 µs",
        'button aria-pressed="false": .swatch.hatched style="--fill: #7b7f87;" |',
      ],
    },
  ],
  [
    "step: keys in the list",
    "samples",
    STEP,
    {
      acts: [press(".layer-scroll", "ArrowDown", "ArrowDown", "End")],
      shows: [
        'on" aria-label="Table of liv…  →  focused',
        'tensor="… 1" data-why="largest → 19" data-why="selected',
        "+ rou… 18.0 MiB (18,878,464 B) → 512 B",
        'utton .leads: vgg/block5_conv1 → head": button .leads: head',
      ],
    },
  ],
  [
    "step: survivors and event index chosen",
    "samples",
    STEP,
    {
      acts: [click(".survived"), click(".segments button", "event index")],
      shows: ['text "… 15 ms → 30', 'text "… 20 ms → 40'],
    },
  ],
  [
    "step: category hovered",
    "samples",
    `${STEP}&stack=category`,
    {
      acts: [point("tr.choosable", "mouseenter", 5, 5)],
      shows: [
        "fill pattern … eea7: → 4904:",
        "fill pattern … e03a: → 08aa:",
        "fill pattern … 307c: → ad6e:",
        "fill pattern … cd66: → 51e8:",
      ],
    },
  ],
  [
    "step: moment cleared",
    "samples",
    `${STEP}&moment=20`,
    {
      acts: [click(".unpin")],
      shows: [
        "h3 .one-line: Live allocations at … 10 ms, → the peak,",
        "p .small.one-line: … title= → 15.5 ms · | title=",
        '.shape: button .operation aria-pressed="false": block1_conv2/workspace',
      ],
    },
  ],
  [
    "step: tensor cleared by Escape",
    "samples",
    `${STEP}&tensor=30&moment=20`,
    {
      acts: [press("body", "Escape")],
      shows: [
        'tr … .tensor-row aria-current="true" data-row= → data-row=',
        "e | dd: … 7 ms to 23 ms: 16 ms → throughout the step",
        'nsor="… 30" data-why="selected → 1" data-why="largest',
        '": button .leads: block1_conv1 → vgg/block5_conv1": button .leads: vgg/block5_',
      ],
    },
  ],
  [
    "step: zoom reset by a double-click",
    "samples",
    `${STEP}&span=10-20`,
    {
      acts: [point(".u-over", "dblclick", 300, 100)],
      shows: [
        'title="Show whole step" aria-label="Whole step"… : →  disabled="":',
        "column 17: nothing 154, pattern 5616 1, pattern 0874 4, pattern ee9",
        "column 842: nothing 149, pattern 5616 1, pattern e03a 4, pattern 56",
        "column 172: nothing 131, pattern cd66 1, pattern 5616 1, pattern cd",
      ],
    },
  ],
  [
    "step: zoomed to the selected span",
    "samples",
    `${STEP}&selected=10-30`,
    {
      acts: [click(".tensor.span button", "Zoom to span")],
      shows: [
        "fillRect #202124: … 210.5 31 282 → 76 31 860",
        "ern 5616 1, pattern e03a 5, pa → 103,",
        "column 17: nothing … 154, → 137, pattern cd66 1, pattern 5616 1, pattern",
        "ern 5616 1, pattern e03a 5, pa → 81, pattern 5616 1, pattern e03a 5, pattern 5",
      ],
    },
  ],
  [
    "step: span dragged with Ctrl",
    "samples",
    STEP,
    {
      acts: [drag(".u-over", [200, 100], [400, 100], { ctrlKey: true })],
      shows: [
        'peak: 165 MiB in use; workspa → 14" aria-valuetext="at 7 ms, forward: 97.2 Mi',
        "h3 .one-line: Live allocations at … the peak, → 7 ms,",
      ],
    },
  ],
  [
    "step: zoomed by a drag",
    "samples",
    STEP,
    {
      acts: [drag(".u-over", [200, 100], [400, 100])],
      shows: [
        '.figure aria-label="… 72 MiB": 72.0 → 4 MiB": 4.0',
        ".small.one-line: … 54 of 54, 165 → 37 of 37, 97.2",
      ],
    },
  ],
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
    {
      acts: [click(".tensor-tools button", "Zoom to lifetime")],
      shows: [
        "column 17: nothing … 154, → 132, pattern 5616 1, pattern cd66 5, pattern",
        "column 172: nothing … 131, → 103, pattern 5616 1, pattern e03a 5, pattern",
        "column 842: nothing … 149, → 77, pattern 5616 1, pattern e03a 5, pattern 5",
        ".9V162.5H546.3V162.5H559.8V168 → M142.2 161.8H142.2V161.8H561.1V162.1H583.2V16",
      ],
    },
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
    {
      acts: [click("[data-testid='live'] tbody tr[data-row] .operation")],
      shows: [
        "stroke #ffffff 4.5 round butt: M76.0 240.2H76.0V240.2H936.0V215.5H76.",
        "stroke #b94f06 2.5 round butt: M76.0 240.2H76.0V240.2H936.0V215.5H76.",
        'tensor="1" data-why="… largest → selected',
        "quiet: Zoom to lifetime | butt → Selected tensor | .tensor-tools: button .quie",
      ],
    },
  ],
  [
    "step: keys on the minimap",
    "samples",
    `${STEP}&span=10-20`,
    {
      acts: [press(".minimap-box", "ArrowRight", "ArrowLeft", "Home", "End")],
      shows: [
        "d butt: M … 1796.5 31 L 1796.5 → -1565.5 31 L -1565.5",
        "d butt: M … 1952.5 31 L 1952.5 → -1408.5 31 L -1408.5",
        "d butt: M … 1718.5 31 L 1718.5 → -1643.5 31 L -1643.5",
        "76 … 70 to 936 129.5, bec4632b → 63 to 936 141, 8d02cc7d",
      ],
    },
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
      shows: [
        "ern cd66 6, pattern 089f 3, pa → 97, pattern 5616 1, pattern e03a 5, pattern 5",
        "ern cd66 7, pattern 5616 1, pa → 85, pattern 5616 1, pattern e03a 5, pattern 5",
        "ern cd66 1, pattern 5616 1, pa → 73, pattern 5616 1, pattern e03a 5, pattern 5",
        "ern 5616 1, pattern e03a 7, pa → 56, pattern 5616 1, pattern e03a 4, pattern 5",
      ],
    },
  ],
  [
    "step: download",
    "samples",
    "view=step&run=all_trainable&step=3",
    {
      acts: [click(".downloads-menu button", "CSV"), click(".downloads-menu button", "SVG")],
      shows: [
        "vgg/block2_conv1,optimizer_state,true,,,,590848,1,,,,,9,true",
        "block1_conv1,optimizer_state,true,,,,14336,1,,,,,11,true",
      ],
    },
  ],
  [
    "step: run with every request",
    "samples",
    "view=step&run=requests",
    { shows: [".nothing: h2: requests has no step timeline | p: No timeline of step 3: it was n"] },
  ],
  ["step: failure", "recorded", OOM_STEP],
  [
    "step: tensors at their addresses",
    "recorded",
    `${OOM_STEP}&place=by+address`,
    {
      since: OOM_STEP,
      shows: [
        "egend-item: i .key.peak | peak → .key.peak | peak | .legend-item: i .key.cut |",
        "column 17: nothing 31, pattern 0874 1, pattern 88c8 1, pattern 0874",
        "column 172: nothing 31, pattern 0874 1, pattern 88c8 1, pattern 087",
      ],
    },
  ],
  [
    "step: at addresses, by layer and event, zoomed",
    "recorded",
    `${OOM_STEP}&place=by+address&tensor_colour=layer&timeline=event+index&span=40-90`,
    { since: OOM_STEP },
  ],
  [
    "step: failure, span selected",
    "recorded",
    `${OOM_STEP}&selected=30-90`,
    {
      since: OOM_STEP,
      shows: [
        '.swatch.hatched style="--fill: #7b7f87;" | unattributed',
        '.number data-figure="freed" data-bytes="72" data-tip="72 B": <0.01',
        '.number data-figure="freed" data-bytes="2232" data-tip="2.2 KiB": <0.01',
        'tr data-group="unattributed"',
      ],
    },
  ],
  ["step: failure, earlier", "recorded", `${OOM_STEP}&step=6&stack=layer`, { since: OOM_STEP }],
  [
    "step: failure, survivors",
    "recorded",
    `${OOM_STEP}&step=6&survived=1&moment=4`,
    { since: OOM_STEP },
  ],
  [
    "step: narrow",
    "samples",
    STEP,
    {
      width: 300,
      shows: [
        "pixels … 860 259 8bc8b757 → 200 259 0be1f561",
        '.minimap style="margin-left: 76px; width: … 860px; → 200px;',
        '.u-wrap style="width: … 960px; → 300px;',
        '.u-under style="left: 76px; top: 31px; width: … 860px; → 200px;',
      ],
    },
  ],
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
    {
      since: "view=fragmentation&run=frozen&step=163",
      shows: [
        "97 times fillRect, … 17bc6082 → 235076a5",
        "86 times fillRect, … a97dbbe9 → 17f16f68",
        "fillRect pattern … e03a: → cc3b:",
      ],
    },
  ],
  [
    "fragmentation: by layer",
    "samples",
    "view=fragmentation&run=frozen&step=163&colour=layer",
    {
      since: "view=fragmentation&run=frozen&step=163",
      shows: ["fillRect pattern … e03a: → 6bcc:"],
    },
  ],
  [
    "fragmentation: category selected",
    "samples",
    "view=fragmentation&run=frozen&step=163&category=weights",
    {
      since: "view=fragmentation&run=frozen&step=163",
      shows: ["fillRect pattern … e03a: → 08aa:"],
    },
  ],
  [
    "fragmentation: size to fit",
    "samples",
    "view=fragmentation&run=frozen&step=163&fit=40",
    {
      since: "view=fragmentation&run=frozen&step=163",
      shows: [
        "p .small: 41,943,040 B requested, 41,943,040 B after rounding, 59,006,208",
        'p data-fits="true" aria-live="polite": <strong: Yes.> A free chunk of 56.3',
      ],
    },
  ],
  [
    "fragmentation: keys over a region",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [press(".strip-plot", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "+", "Enter")],
      shows: [
        "strokeRect #202124 2 miter butt: 97 1 766 28",
        "p … .chunk → .chunk: <strong: free> 1.1 MiB (1,129,984 B)",
        'th" aria-label="region 1, 193  → true" title="Region 1: show at the scale of a',
        'gion="0" data-begin="139637976 → .strip-plot.zoomed data-region="0" data-begin',
      ],
    },
  ],
  [
    "fragmentation: region zoomed by keys",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [press(".strip-plot", "End", "w", "w", "a", "s")],
      shows: [
        "p … .chunk → .chunk: <strong: free> 56.3 MiB (59,006,208 B",
        'gion="0" data-begin="139637976 → .strip-plot.zoomed data-region="0" data-begin',
      ],
    },
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
      shows: [
        'i .strip-drag style="left: 10.42%; right: calc(100% - 31.25%);"',
        "p … .chunk → .chunk: <strong: vgg/block1_conv2: workspace,",
        'a-valuetext="no chunk selected → 19" aria-valuetext="vgg/block1_conv2: workspa',
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
      shows: [
        'gion="0" data-begin="139637976 → .strip-plot.zoomed data-region="0" data-begin',
        "strokeRect #202124 2 miter butt: 913.5 1 45.5 28",
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
      shows: [
        "fillRect pattern e03a: … 90 0 20 → 104 0 26",
        "fillRect pattern e03a: … 19 0 21 → 16 0 26",
      ],
    },
  ],
  [
    "fragmentation: region widened",
    "samples",
    "view=fragmentation&run=frozen&step=163",
    {
      acts: [click(".strip-label button")],
      shows: [
        '… .strip-plot style="width: 100%;" → .strip-plot.zoomed',
        'th" aria-label="region 1, 193  → true" title="Region 1: show at the scale of a',
      ],
    },
  ],
  [
    "fragmentation: keys over the chart",
    "samples",
    "view=fragmentation&run=frozen",
    { acts: [press(".plot", "ArrowRight", "End")], shows: ['.figure aria-label="unknown": –'] },
  ],
  [
    "fragmentation: validation",
    "samples",
    "view=fragmentation&run=frozen&phase=validation",
    {
      shows: [
        "stroke #202124 1.5 round butt:",
        "stroke #5f6368 1 round butt:",
        "fill pattern 7f02:",
        "fill pattern ded9:",
      ],
    },
  ],
  [
    "fragmentation: without maps",
    "samples",
    "view=fragmentation&run=growing",
    {
      shows: [
        "h2: No step of this run was traced on this device",
        'pre tabindex="0": <code: tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[1',
        "p: The pool was not measured, and free chunks are known at traced steps only. Tr",
      ],
    },
  ],
  [
    "fragmentation: pool that grows",
    "tasks",
    "view=fragmentation&run=unfrozen",
    {
      shows: [
        "fill pattern e4f1: rect 119 48 14.5 60.5 rect 434.5 48 14.5 60.5",
        "ul .notices: li: the map is not available, because this is a test",
        "fill pattern f0bc: rect 119 108.5 14.5 106 rect 434.5 108.5 14.5 106",
        '.figure aria-label="unknown": –',
      ],
    },
  ],
  [
    "fragmentation: cluster",
    "devices",
    "view=fragmentation",
    {
      shows: [
        "h2: Memory of worker_1/GPU:1 <small: at the peak of step 60>",
        "p: TensorFlow's pool holds 1.5 GiB: 1.0 GiB in use, 482 MiB free.",
        ".pool-growth: ul: li: The pool was 1.5 GiB at step 0. | li: From step 0 to step",
        'section .map aria-label="Memory map": h2: Memory map | p .small: Unknown: no tra',
      ],
    },
  ],
  ["fragmentation: recorded failure", "recorded", "view=fragmentation&run=out_of_memory"],
  [
    "fragmentation: size typed",
    "recorded",
    "view=fragmentation&run=out_of_memory",
    {
      acts: [enter(".fits input", "300")],
      shows: ['h3: label: Would a tensor of | input min="0" step="any" value="… 41 → 300'],
    },
  ],
  [
    "fragmentation: download",
    "samples",
    "view=fragmentation&run=requests",
    {
      acts: [click(".downloads-menu button", "CSV")],
      shows: ["0,unknown,peak,22836224,,,,,,,,583872", "1,unknown,peak,22836224,,,,,,,,583872"],
    },
  ],
];

export const IN_STEPS: Case[] = [...STEPS, ...FRAGMENTATION];

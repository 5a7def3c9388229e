/**
 * Small cases of everything that the page can be shown; each has an address in the playground and
 * is read by a test.
 */

import type { Plan } from "./training";

const GIB = 2 ** 30;
const LAYERS = ["vgg16/block1_conv1", "vgg16/block3_conv2", "vgg16/block5_conv3"];

const plan = (changed: Partial<Plan>): Plan => ({
  run: "frozen",
  steps: 240,
  epochSteps: 40,
  unfreezeAt: 160,
  traceEvery: 40,
  capacity: GIB / 2,
  scale: 1,
  layers: LAYERS,
  pool: true,
  ...changed,
});

export interface Case {
  about: string;
  plans: readonly Plan[];
  /** Every answer is a refusal with this sentence. */
  refuses?: string;
  /** Milliseconds before each answer. */
  delay?: number;
}

export const CASES: Record<string, Case> = {
  "two-runs": {
    about: "an unfreezing, and another run beside it",
    plans: [plan({}), plan({ run: "all_trainable", unfreezeAt: 0, traceEvery: 60 })],
  },
  "one-step": {
    about: "a run of one step",
    plans: [plan({ steps: 4, unfreezeAt: null, traceEvery: 9 })],
  },
  roomy: {
    about: "a device with much more memory than is used, and no pool figures",
    plans: [plan({ capacity: 80 * GIB, pool: false, scale: 8 })],
  },
  "at-once": {
    about: "an allocator that took its whole limit at once",
    plans: [plan({ atOnce: true })],
  },
  measured: {
    about: "a pool measured at the end of every step",
    plans: [plan({ measureEvery: 1 })],
  },
  "measured-at-times": {
    about: "a pool measured at the end of some steps, traced at others, in two attempts",
    plans: [plan({ measureEvery: 7, restarts: [120] })],
  },
  "no-capacity": {
    about: "an allocator that does not say its limit",
    plans: [plan({ capacity: null })],
  },
  damaged: {
    about: "damage and notes",
    plans: [
      plan({
        damage: ["Steps 100 to 119 could not be read: a chunk's checksum is wrong."],
        notes: ["Host memory was not recorded, because psutil is missing."],
      }),
    ],
  },
  growing: {
    about: "memory that grows over the steps",
    plans: [
      plan({
        findings: [
          {
            kind: "growth",
            worker: "",
            device: "GPU:0",
            since_step: 40,
            step: 239,
            bytes: 3_250_000,
            share: 0.06,
            minor: false,
            sentence:
              "GPU:0: memory in use at step end grows by 1.5 MiB every 100 steps since step 40, from 46.6 MiB to 49.7 MiB at step 239.",
          },
        ],
      }),
    ],
  },
  oom: {
    about: "steps that ran out of memory, for either reason",
    plans: [plan({ failures: ["fragmentation", "capacity"] }), plan({ run: "well" })],
  },
  "oom-without-map": {
    about: "a step that ran out of memory, without a memory map",
    plans: [plan({ failures: ["capacity"], mapless: true })],
  },
  "recorded-activations": {
    about: "activation bytes that a training wrote itself",
    plans: [plan({ run: "transformer", recorded: 20 })],
  },
  "never-unfrozen": { about: "layers that stay frozen", plans: [plan({ unfreezeAt: null })] },
  "many-chunks": {
    about: "a map of some 50,000 chunks",
    plans: [plan({ steps: 44, unfreezeAt: null, chunkBytes: 4096 })],
  },
  compiled: { about: "steps that run compiled modules", plans: [plan({ compiled: true })] },
  "many-moments": {
    about: "a step of some 8,000 moments",
    plans: [plan({ steps: 44, unfreezeAt: null, momentsEach: 380 })],
  },
  "no-timelines": {
    about: "traced steps of an earlier version, without timelines",
    plans: [plan({ bare: true })],
  },
  restarted: { about: "a training that was started again", plans: [plan({ restarts: [120] })] },
  "two-workers": {
    about: "two workers with four devices each",
    plans: [plan({ steps: 120, scale: 2, unfreezeAt: null, workers: { count: 2, devices: 4 } })],
  },
  "many-devices": {
    about: "64 workers with eight devices each",
    plans: [plan({ steps: 60, unfreezeAt: null, workers: { count: 64, devices: 8 } })],
  },
  hostile: {
    about: "names that hold markup",
    plans: [
      plan({
        run: "<img src=x onerror=alert(1)>",
        layers: ["<script>alert(2)</script>", "a".repeat(300)],
      }),
    ],
  },
  large: {
    about: "10,000 steps",
    plans: [
      plan({ steps: 10000, epochSteps: 500, unfreezeAt: 6000, traceEvery: 250, measureEvery: 3 }),
    ],
  },
  "many-runs": {
    about: "300 runs",
    plans: Array.from({ length: 300 }, (_, index) =>
      plan({ run: `sweep/learning_rate_${index}`, steps: 40 }),
    ),
  },
  empty: { about: "no run has memory data", plans: [] },
  refused: {
    about: "a server that refuses",
    plans: [plan({})],
    refuses: "The run directory cannot be read.",
  },
  slow: { about: "a slow server", plans: [plan({})], delay: 3000 },
};

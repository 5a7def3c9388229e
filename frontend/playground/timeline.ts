/**
 * Made-up answers of the timeline routes for the training of a plan: at the peak, its ledger is
 * live.
 */

import { encodeColumns } from "./encode";
import { ledgerAt, snapshotAt, type Plan } from "./training";
import type { Band, Category, ChunkOwner, TimelineRef } from "../src/schema";

interface Row {
  start: number;
  end: number;
  bytes: number;
  rounding: number;
  count: number;
  owner: number;
  op: number;
}

const STAYS = new Set([
  "weights",
  "optimizer_state",
  "other_state",
  "held_tensors",
  "rounding",
  "unattributed",
]);

/** Rounding is stored with the chunks that it is in: here an unsplit remainder, all of it. */
const stored = (category: Category): Category => (category === "rounding" ? "workspace" : category);

/** Splits a ledger row into several allocations. */
const pieces = (bytes: number, count: number): number[] => {
  const size = Math.ceil(bytes / count / 256) * 256;
  return Array.from({ length: count }, (_, index) =>
    Math.max(Math.min(size, bytes - index * size), 0),
  ).filter((piece) => piece > 0);
};

/**
 * Persistent rows are live all the time; others are allocated one after another before the peak and
 * freed after it.
 */
function rowsOf(
  plan: Plan,
  step: number,
): { rows: Row[]; owners: ChunkOwner[]; ops: string[]; moments: number; peak: number } {
  const each = plan.momentsEach ?? 8;
  const ledger = ledgerAt(plan, step);
  const moving = ledger.filter(({ category }) => !STAYS.has(category));
  const peak = moving.length * each;
  const moments = 2 * peak + 20;
  const rows: Row[] = [];
  const owners = ledger.map(({ layer, category, trainable }) => ({
    layer,
    category: stored(category),
    trainable,
  }));
  const ops: string[] = [];
  ledger.forEach(({ layer, category, bytes }, owner) => {
    if (STAYS.has(category)) {
      const rounding = category === "unattributed" ? NaN : category === "rounding" ? bytes : 0;
      rows.push({
        start: 0,
        end: moments,
        bytes,
        rounding,
        count: category === "unattributed" ? 0 : 1,
        owner,
        op: NaN,
      });
      return;
    }
    const first = moving.findIndex((row) => row === ledger[owner]) * each;
    ops.push(`${layer ?? "data"}/${category}`);
    pieces(bytes, each).forEach((piece, index) => {
      const start = first + index + 1;
      const count = index === each - 1 && each > 4 ? 3 : 1;
      rows.push({
        start,
        end: Math.min(2 * peak - start + 6, moments - 1),
        bytes: piece,
        rounding: 0,
        count,
        owner,
        op: count > 1 ? NaN : ops.length - 1,
      });
    });
  });
  return { rows, owners, ops, moments, peak };
}

function bandsOf(peak: number, moments: number): Band[] {
  return [
    { name: "forward", start: 0, end: peak + 1 },
    { name: "backward", start: peak + 1, end: peak + 4 },
    { name: "backward_and_update", start: peak + 4, end: moments - 12 },
    { name: "update", start: moments - 12, end: moments - 2 },
  ];
}

export function timelineRefOf(plan: Plan, step: number): TimelineRef {
  const { in_use_bytes, wall_time, device, phase } = snapshotAt(plan, step);
  const { rows, moments, peak } = rowsOf(plan, step);
  return {
    step,
    phase,
    device,
    wall_time,
    mode: "graph",
    in_use_bytes,
    allocations: rows.length,
    moments,
    peak,
    events: moments - 1,
    duration_ns: moments * 400_000,
    not_available: plan.compiled
      ? ["Measured times inside compiled modules are not available, because this is made up."]
      : [],
  };
}

export function timelineOf(plan: Plan, step: number): Uint8Array<ArrayBuffer> {
  const { rows, owners, ops, moments, peak } = rowsOf(plan, step);
  const head = {
    run: plan.run,
    ...timelineRefOf(plan, step),
    owners,
    ops,
    shapes: [],
    lines: [],
    bands: bandsOf(peak, moments),
    compiled: plan.compiled ? [{ start: 4, end: moments - 4 }] : [],
    // The forward pass takes a third of the time.
    time_ns: Array.from({ length: moments }, (_, moment) =>
      moment <= peak ? moment * 250_000 : peak * 250_000 + (moment - peak) * 500_000,
    ),
    event: Array.from({ length: moments }, (_, moment) => moment),
  };
  return encodeColumns(head, {
    start: rows.map(({ start }) => start),
    end: rows.map(({ end }) => end),
    bytes: rows.map(({ bytes }) => bytes),
    rounding_bytes: rows.map(({ rounding }) => rounding),
    count: rows.map(({ count }) => count),
    owner: rows.map(({ owner }) => owner),
    op: rows.map(({ op }) => op),
  });
}

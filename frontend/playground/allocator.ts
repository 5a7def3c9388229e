/** Made-up answers of the routes about the allocator, for the training of a plan. */

import { encodeColumns } from "./encode";
import { ledgerAt, snapshotAt, type Plan } from "./training";
import type {
  Bin,
  BlockingChunks,
  ChunkOwner,
  DeviceMemory,
  Fixes,
  LedgerRow,
  MapRef,
  MemorySegment,
  Oom,
} from "../src/schema";

const BASE = 2 ** 46;
const MIB = 2 ** 20;

interface Piece {
  bytes: number;
  state: number;
  owner: number;
}

/** No chunk is rounding alone. */
const ownerOf = ({ layer, category, trainable }: LedgerRow): ChunkOwner => ({
  layer,
  category: category === "rounding" ? "workspace" : category,
  trainable,
});

/**
 * Two regions: the ledger's rows cut into chunks, a hole after every second one, the rest in one
 * chunk at the end.
 */
function piecesOf(plan: Plan, step: number): { pieces: Piece[]; owners: ChunkOwner[] } {
  const ledger = ledgerAt(plan, step);
  const { pool_bytes, in_use_bytes } = snapshotAt(plan, step);
  const cut = plan.chunkBytes ?? 4 * MIB;
  const hole = 64 * 1024;
  let free = (pool_bytes ?? in_use_bytes) - in_use_bytes;
  const pieces: Piece[] = [];
  ledger.forEach(({ category, bytes }, owner) => {
    for (let left = bytes; left > 0; left -= cut) {
      pieces.push({
        bytes: Math.min(left, cut),
        state: 1,
        owner: category === "unattributed" ? NaN : owner,
      });
      if (pieces.length % 3 === 1 && free > hole) {
        pieces.push({ bytes: hole, state: 0, owner: NaN });
        free -= hole;
      }
    }
  });
  pieces.push({ bytes: free, state: 0, owner: NaN });
  return { pieces, owners: ledger.map(ownerOf) };
}

function binsOf(pieces: readonly Piece[]): Bin[] {
  const bins = new Map<number, Bin>();
  for (const { bytes, state } of pieces) {
    if (state !== 0 || bytes === 0) continue;
    const size = 2 ** Math.floor(Math.log2(bytes));
    const bin = bins.get(size) ?? { bin_bytes: size, chunks: 0, free_bytes: 0 };
    bins.set(size, { ...bin, chunks: bin.chunks + 1, free_bytes: bin.free_bytes + bytes });
  }
  return [...bins.values()].sort((a, b) => a.bin_bytes - b.bin_bytes);
}

function blockingChunksOf(pieces: readonly Piece[]): BlockingChunks[] {
  const found = new Map<number, BlockingChunks>();
  pieces.forEach(({ bytes, state, owner }, index) => {
    const [before, after] = [pieces[index - 1], pieces[index + 1]];
    if (state !== 1 || before?.state !== 0 || after?.state !== 0) return;
    const place = Number.isNaN(owner) ? -1 : owner;
    const joined = before.bytes + bytes + after.bytes;
    const one = found.get(place) ?? { owner: place, chunks: 0, bytes: 0, joined_bytes: 0 };
    found.set(place, {
      owner: place,
      chunks: one.chunks + 1,
      bytes: one.bytes + bytes,
      joined_bytes: Math.max(one.joined_bytes, joined),
    });
  });
  return [...found.values()].sort((a, b) => b.joined_bytes - a.joined_bytes);
}

export function mapRefOf(plan: Plan, step: number): MapRef {
  const { in_use_bytes, pool_bytes, capacity_bytes, wall_time, device, phase } = snapshotAt(
    plan,
    step,
  );
  const { pieces } = piecesOf(plan, step);
  return {
    step,
    phase,
    device,
    wall_time,
    chunks: pieces.length,
    in_use_bytes,
    pool_bytes,
    capacity_bytes,
    complete: true,
    not_available: [],
    regions: [],
  };
}

export function mapOf(plan: Plan, step: number): Uint8Array<ArrayBuffer> {
  const { pieces, owners } = piecesOf(plan, step);
  const half = Math.floor(pieces.length / 2);
  let address = BASE;
  const places = pieces.map(({ bytes }, index) => {
    if (index === half) address += 2 ** 33;
    address += bytes;
    return address - bytes;
  });
  const sum = (from: readonly Piece[], state?: number): number =>
    from
      .filter((piece) => state === undefined || piece.state === state)
      .reduce((total, { bytes }) => total + bytes, 0);
  const head = {
    run: plan.run,
    ...mapRefOf(plan, step),
    states: ["free", "in_use", "unknown"],
    sources: ["none", "variable", "held_tensor", "trace", "earlier_step", "size"],
    owners,
    regions: [
      { address: places[0], bytes: sum(pieces.slice(0, half)) },
      { address: places[half], bytes: sum(pieces.slice(half)) },
    ],
    summary: {
      free_bytes: sum(pieces, 0),
      largest_free_bytes: Math.max(
        ...pieces.filter(({ state }) => state === 0).map(({ bytes }) => bytes),
      ),
      unreserved_bytes: 0,
      rounding_bytes: 0,
      owned_bytes: sum(pieces.filter(({ owner }) => !Number.isNaN(owner))),
      owner_unknown_bytes: sum(
        pieces.filter(({ owner, state }) => state === 1 && Number.isNaN(owner)),
      ),
      unknown_bytes: 0,
      bins: binsOf(pieces),
      blocking_chunks: blockingChunksOf(pieces),
    },
  };
  return encodeColumns(head, {
    address: places,
    bytes: pieces.map(({ bytes }) => bytes),
    requested_bytes: pieces.map(({ bytes, state }) => (state === 1 ? bytes - 64 : NaN)),
    state: pieces.map(({ state }) => state),
    owner: pieces.map(({ owner }) => owner),
    source: pieces.map(({ owner }) => (Number.isNaN(owner) ? 0 : 3)),
    since: pieces.map(({ state }, index) => (state === 1 ? index % 40 : NaN)),
    region: pieces.map((_, index) => (index < half ? 0 : 1)),
  });
}

export function deviceMemoryOf(plan: Plan, step: number): DeviceMemory {
  const { in_use_bytes, pool_bytes, capacity_bytes, device, phase } = snapshotAt(plan, step);
  const sums = new Map<string, MemorySegment>();
  for (const { category, trainable, bytes } of ledgerAt(plan, step)) {
    const split = category === "weights" ? trainable : null;
    const key = `${category}/${split}`;
    sums.set(key, {
      part: "in_use",
      category,
      trainable: split,
      bytes: (sums.get(key)?.bytes ?? 0) + bytes,
    });
  }
  const rest = (part: MemorySegment["part"], bytes: number): MemorySegment[] =>
    bytes > 0 ? [{ part, category: null, trainable: null, bytes }] : [];
  const total = plan.capacity ?? pool_bytes ?? in_use_bytes;
  const segments = [
    ...sums.values(),
    ...rest("pool_free", (pool_bytes ?? in_use_bytes) - in_use_bytes),
    ...rest("unreserved", total - (pool_bytes ?? in_use_bytes)),
  ];
  const notes = ["Other processes' memory is unknown: no driver answered for this device."];
  const none = { driver_process_bytes: null, driver_used_bytes: null, driver_total_bytes: null };
  return {
    run: plan.run,
    device,
    step,
    phase,
    at_failure: false,
    in_use_bytes,
    pool_bytes,
    capacity_bytes,
    total_bytes: total,
    ...none,
    segments,
    notes,
  };
}

const FIX = {
  batch_size: null,
  capacity_bytes: null,
  freeze: null,
  budget_bytes: null,
  peak_bytes: null,
  low_bytes: null,
  high_bytes: null,
  code: null,
};

export function oomsOf(plan: Plan): Oom[] {
  return (plan.failures ?? []).map((verdict, index): Oom => {
    const step = 43 + index;
    const { in_use_bytes, pool_bytes, device, wall_time } = snapshotAt(plan, step);
    const free = (pool_bytes ?? in_use_bytes) - in_use_bytes;
    const requested = verdict === "capacity" ? free + 64 * MIB : Math.floor(free * 0.8);
    return {
      status: "failed",
      step,
      phase: "train",
      during: "step",
      device,
      wall_time,
      requested_bytes: requested,
      free_bytes: free,
      largest_free_bytes: Math.floor(free / 3),
      in_use_bytes,
      pool_bytes,
      capacity_bytes: pool_bytes,
      verdict,
      reason: "The figures behind the verdict stand here.",
      op: `${plan.layers[0] ?? ""}/Relu`,
      layer: plan.layers[0] ?? null,
      line: "train.py:42",
      batch_size: 32,
      shape: "[32,64,64,64] float",
      chunks: plan.mapless ? null : 5,
      ledger: ledgerAt(plan, step),
      not_available: [],
      request_ledger: [],
      largest_tensors: [],
      request: null,
    };
  });
}

/** `GET fixes`. */
export const fixesOf = (plan: Plan, oom: number): Fixes & { run: string; oom: number } => ({
  run: plan.run,
  oom,
  fixes: [
    {
      ...FIX,
      kind: "batch",
      change: "Batch size 16",
      sentence: "Batch size 16 instead of 32. Simulated peak: 410 MiB of 512 MiB.",
      enough: true,
      batch_size: 16,
      peak_bytes: 410 << 20,
      low_bytes: 402 << 20,
      high_bytes: 420 << 20,
    },
    {
      ...FIX,
      kind: "precision",
      change: "Mixed precision",
      sentence: "Mixed precision (mixed_float16), as an estimate.",
      enough: null,
    },
  ],
  note: null,
  unchanged: { peak_bytes: 530 << 20, low_bytes: 524 << 20, high_bytes: 540 << 20 },
});

/** What each figure is called and what it means, the same in every view. */

export interface Word {
  label: string;
  meaning: string;
  /** Who says it. */
  learned: string;
}

const ALLOCATOR = "the allocator's own figure";
const DRIVER = "the driver's figure";

export const WORDS = {
  capacity_bytes: { label: "capacity", meaning: "the allocator's limit in bytes", learned: ALLOCATOR },
  pool_bytes: { label: "pool", meaning: "bytes the allocator has taken from the device (regions)", learned: ALLOCATOR },
  in_use_bytes: { label: "in use", meaning: "bytes of the pool handed out to tensors", learned: ALLOCATOR },
  peak_bytes: { label: "measured peak", meaning: "the maximum of the bytes in use over the step", learned: ALLOCATOR },
  headroom: { label: "headroom", meaning: "capacity − measured peak", learned: ALLOCATOR },
  free_bytes: { label: "free in the pool", meaning: "bytes of the pool that are not in use, in all blocks together", learned: ALLOCATOR },
  idle: { label: "idle pool", meaning: "pool − in use: taken from the device, and used by nobody", learned: ALLOCATOR },
  free_largest: {
    label: "largest free block",
    meaning: "the largest free block of the pool: a larger tensor fails unless the pool can grow",
    learned: ALLOCATOR,
  },
  free_rest: { label: "rest of the free", meaning: "the pool's other free blocks", learned: ALLOCATOR },
  unreserved: { label: "not yet in the pool", meaning: "capacity − pool: the allocator may still take it", learned: ALLOCATOR },
  rounding_bytes: {
    label: "rounding",
    meaning: "allocated minus requested bytes: 256-byte rounding, chunks that were not split",
    learned: "the trace",
  },
  utilisation: { label: "utilisation", meaning: "in use / pool", learned: ALLOCATOR },
  fragmentation: {
    label: "fragmentation",
    meaning: "(free − largest free block) / free, over the pool; 0/0 when the pool is full",
    learned: ALLOCATOR,
  },
  requested_bytes: { label: "asked for", meaning: "the request that failed", learned: "TensorFlow's error or dump" },
  host_resident_bytes: {
    label: "process in host memory",
    meaning: "resident memory of the training's process",
    learned: "the operating system's figure",
  },
  driver_process_bytes: { label: "process on the card", meaning: "what this process has on the card", learned: DRIVER },
  driver_used_bytes: { label: "all processes on the card", meaning: "what all processes have on the card", learned: DRIVER },
  driver_total_bytes: { label: "card", meaning: "the card's memory", learned: DRIVER },
} satisfies Record<string, Word>;

export type WordName = keyof typeof WORDS;

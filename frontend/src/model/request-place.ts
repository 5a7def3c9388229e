/** A request over a memory map: what each chunk would do with it. */

import { formatBytes } from "../lib/bytes";
import { wouldFit } from "./fit";
import { chunkFacts, stateOf, type MemoryMap } from "./memory-map";

export interface RequestPlace {
  /** Null where the chunk's state is unknown. */
  holds: boolean | null;
  sentence: string;
}

/** The free chunks, the largest first; equals in address order. */
export function freeBySize(map: MemoryMap): number[] {
  const free = Array.from({ length: map.rows }, (_, chunk) => chunk).filter((chunk) => stateOf(map, chunk) === "free");
  return free.sort((a, b) => (map.bytes[b] ?? 0) - (map.bytes[a] ?? 0) || a - b);
}

/** Whether a chunk would hold a request, and why not. */
export function requestPlace(map: MemoryMap, chunk: number, requested: number): RequestPlace {
  const { rounded_bytes: needed } = wouldFit(map, requested);
  const size = map.bytes[chunk] ?? 0;
  const state = stateOf(map, chunk);
  if (state === "unknown") return { holds: null, sentence: "Unknown: the state of this chunk is unknown." };
  if (state === "in_use") return { holds: false, sentence: `In use: ${formatBytes(size)}, ${chunkFacts(map, chunk).title}.` };
  if (size >= needed) return { holds: true, sentence: `Holds it: ${formatBytes(size)} free, ${formatBytes(needed)} needed.` };
  return {
    holds: false,
    sentence: `Too small: ${formatBytes(size)} free, ${formatBytes(needed)} needed, ${formatBytes(needed - size)} short.`,
  };
}

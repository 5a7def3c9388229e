/** Where the card's memory is: from the whole card to the categories in use, as one bar. */

import { groupLabel, type Category } from "./categories";
import type { Phase } from "./run";

export const PARTS = ["in_use", "free_largest", "free_rest", "pool_free", "process_other", "others", "card_free", "unreserved"] as const;
export type CardPart = (typeof PARTS)[number];

export interface Segment {
  part: CardPart;
  category: Category | null;
  trainable: boolean | null;
  bytes: number;
}

export interface Card {
  run: string;
  device: string;
  step: number;
  phase: Phase;
  in_use_bytes: number;
  pool_bytes: number | null;
  capacity_bytes: number | null;
  total_bytes: number | null;
  driver_process_bytes: number | null;
  driver_used_bytes: number | null;
  driver_total_bytes: number | null;
  segments: Segment[];
  notes: string[];
}

const LABELS: Record<CardPart, string> = {
  in_use: "in use",
  free_largest: "idle pool, largest free block",
  free_rest: "idle pool, other free blocks",
  pool_free: "idle pool",
  process_other: "this process outside of the pool",
  others: "other processes",
  card_free: "free on the card",
  unreserved: "not yet in the pool",
};

const MEANINGS: Record<CardPart, string> = {
  in_use: "handed out to tensors",
  free_largest: "taken by TensorFlow, used by nobody: the largest block in one piece",
  free_rest: "taken by TensorFlow, used by nobody: in smaller pieces",
  pool_free: "taken by TensorFlow, used by nobody",
  process_other: "the CUDA context and libraries, as the driver's figure for the process less the pool",
  others: "what the driver says all processes have, less this one",
  card_free: "free, says the driver",
  unreserved: "the allocator may still take it from the device",
};

export function segmentLabel(segment: Segment): string {
  const { part, category, trainable } = segment;
  return part === "in_use" && category !== null ? groupLabel({ category, trainable }) : LABELS[part];
}

export const segmentMeaning = ({ part }: Segment): string => MEANINGS[part];

export const segmentKey = ({ part, category, trainable }: Segment): string =>
  [part, category, trainable].filter((one) => one !== null).join(":");

/** Whether a part belongs to TensorFlow's pool. */
export const inPool = ({ part }: Segment): boolean => ["in_use", "free_largest", "free_rest", "pool_free"].includes(part);

/** "TensorFlow's pool holds 256 MiB, of which 167 MiB are in use…" in the order from the card to the tensors. */
export function cardSentence(card: Card, format: (bytes: number) => string): string {
  const { pool_bytes: pool, in_use_bytes: used, driver_process_bytes: process, driver_used_bytes: all } = card;
  const parts = [
    pool === null ? `${format(used)} are in use` : `TensorFlow's pool holds ${format(pool)}; ${format(used)} of it are in use`,
  ];
  if (pool !== null && pool > used) parts.push(`${format(pool - used)} lie idle`);
  if (process !== null && pool !== null && process > pool)
    parts.push(`${format(process - pool)} more belong to this process (context, libraries)`);
  if (all !== null && process !== null && all > process) parts.push(`${format(all - process)} belong to other processes`);
  return `${parts.join("; ")}.`;
}

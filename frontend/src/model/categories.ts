/** The categories of memory, and the name and meaning of each figure, the same in every view. */

import { formatBytes } from "../lib/bytes";
import { CATEGORIES, HOST_PART_NAMES, type Category, type Group } from "../schema";

const ROUNDING_MEANING = "allocated − requested: 256-byte rounding and unsplit remainders";

const MEANINGS: Record<Category, string> = {
  weights: "layer variables: elements × dtype size",
  optimizer_state: "optimizer slots of trainable weights, such as Adam's two moments",
  other_state: "metrics, seeds, constants",
  held_tensors: "tensors that Python code keeps alive",
  inputs: "the step's batch and prefetched batches",
  activations: "forward results saved for the backward pass",
  activation_gradients: "gradients with respect to activations",
  weight_gradients: "gradients with respect to weights, before the optimizer applies them",
  workspace: "op temporaries and kernel scratch space",
  communication: "packed gradients and buffers of the replicas' collective operations",
  rounding: ROUNDING_MEANING,
  unattributed: "in use, owner unknown",
};

export const stackOrder = ({ category, trainable }: Group): number =>
  3 * CATEGORIES.indexOf(category) + (trainable === null ? 2 : Number(trainable));

/** A short stable name, used in the page's address and as a data attribute. */
export function groupKey(group: Group): string {
  if (group.trainable === null) return group.category;
  return `${group.category}:${group.trainable ? "trainable" : "frozen"}`;
}

export function groupLabel(group: Group): string {
  if (group.trainable === null)
    return group.category === "weights"
      ? "weights, frozen or trainable"
      : categoryLabel(group.category);
  return `${categoryLabel(group.category)}, ${group.trainable ? "trainable" : "frozen"}`;
}

export const categoryLabel = (category: Category): string => category.replaceAll("_", " ");
/** "activations 24.5 MiB, rounding 19.5 MiB". */
export const partsText = (parts: readonly { category: Category; bytes: number }[]): string =>
  parts.map(({ category, bytes }) => `${categoryLabel(category)} ${formatBytes(bytes)}`).join(", ");
export const categoryMeaning = (category: Category): string => MEANINGS[category];

/**
 * The group of the stack that an owner belongs to: only weights are split into frozen and
 * trainable.
 */
export const groupOfOwner = ({ category, trainable }: Group): Group => ({
  category,
  trainable: category === "weights" ? trainable : null,
});

interface Word {
  label: string;
  meaning: string;
  source: string;
}

const ALLOCATOR = "the allocator's own figure";
const DRIVER = "the driver's figure";

export const WORDS = {
  capacity_bytes: {
    label: "capacity",
    meaning: "the allocator's limit in bytes",
    source: ALLOCATOR,
  },
  pool_bytes: {
    label: "pool",
    meaning: "bytes that the allocator has reserved on the device, in regions",
    source: ALLOCATOR,
  },
  allocated_bytes: {
    label: "allocated",
    meaning: "bytes of the pool allocated as chunks",
    source: ALLOCATOR,
  },
  in_use_bytes: {
    label: "in use",
    meaning: "bytes of the pool allocated to tensors",
    source: ALLOCATOR,
  },
  peak_bytes: {
    label: "measured peak",
    meaning: "maximum bytes in use during the step",
    source: ALLOCATOR,
  },
  headroom: { label: "headroom", meaning: "capacity − measured peak", source: ALLOCATOR },
  free_bytes: {
    label: "free in the pool",
    meaning: "pool − allocated, in all free chunks together",
    source: ALLOCATOR,
  },
  free_largest: {
    label: "free: largest chunk",
    meaning: "the pool's largest free chunk: a larger tensor does not fit unless the pool can grow",
    source: ALLOCATOR,
  },
  free_other: {
    label: "free: other chunks",
    meaning: "all free chunks of the pool but the largest",
    source: ALLOCATOR,
  },
  unreserved: {
    label: "unreserved",
    meaning: "capacity − pool: the allocator may still reserve it",
    source: ALLOCATOR,
  },
  rounding_bytes: { label: "rounding", meaning: ROUNDING_MEANING, source: "the trace" },
  utilisation: { label: "utilisation", meaning: "allocated / pool", source: ALLOCATOR },
  fragmentation: {
    label: "fragmentation",
    meaning: "1 − largest free chunk / free bytes of the pool; 0/0 when nothing is free",
    source: ALLOCATOR,
  },
  requested_bytes: {
    label: "requested",
    meaning: "size of the failed allocation",
    source: "TensorFlow's error or dump",
  },
  host_resident_bytes: {
    label: "host RSS",
    meaning: "resident memory of the training process",
    source: "the operating system's figure",
  },
  pinned_pool_bytes: {
    label: HOST_PART_NAMES.pinned_pool_bytes,
    meaning: "TensorFlow's pool of host memory that is pinned for transfers to GPUs (gpu_host_bfc)",
    source: "the allocator's memory map",
  },
  cpu_bytes: {
    label: HOST_PART_NAMES.cpu_bytes,
    meaning: "allocated on CPU:0, without the buffers of tf.data",
    source: ALLOCATOR,
  },
  other_bytes: {
    label: HOST_PART_NAMES.other_bytes,
    meaning: "RSS − the parts above: heaps, stacks, free chunks of CPU:0 and others",
    source: "the operating system's RSS, less the other parts",
  },
  parts_sum: {
    label: "sum of the parts",
    meaning: "host RSS when the parts were measured",
    source: "the operating system's figure",
  },
  tf_data_bytes: {
    label: HOST_PART_NAMES.tf_data_bytes,
    meaning: "elements in buffers and caches of tf.data's pipelines",
    source: "TensorFlow's own model of the pipelines",
  },
  driver_process_bytes: {
    label: "process on device",
    meaning: "device memory of this process",
    source: DRIVER,
  },
  driver_used_bytes: {
    label: "all processes",
    meaning: "device memory of all processes",
    source: DRIVER,
  },
  driver_total_bytes: {
    label: "device memory",
    meaning: "total memory of the device",
    source: DRIVER,
  },
} satisfies Record<string, Word>;

export type WordName = keyof typeof WORDS;

export const HOST_RSS = WORDS.host_resident_bytes.label;

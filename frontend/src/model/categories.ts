/** The categories of memory, in the order of the stack: persistent memory at the bottom, transient memory above it. */

export const CATEGORIES = [
  "weights",
  "optimizer_state",
  "other_state",
  "held_tensors",
  "inputs",
  "activations",
  "weight_gradients",
  "activation_gradients",
  "workspace",
  "rounding",
  "unattributed",
] as const;
export type Category = (typeof CATEGORIES)[number];

/** Categories that outlive a step: the lower part of the stack. */
export const PERSISTENT: readonly Category[] = ["weights", "optimizer_state", "other_state", "held_tensors"];

/** A category, split by `trainable` where that applies; null where it does not. */
export interface Group {
  category: Category;
  trainable: boolean | null;
}

export const ROUNDING_MEANING = "allocated − requested: 256-byte rounding and unsplit remainders";

const LABELS: Record<Category, string> = {
  weights: "weights",
  optimizer_state: "optimizer state",
  other_state: "other state",
  held_tensors: "held tensors",
  inputs: "inputs",
  activations: "activations",
  activation_gradients: "activation gradients",
  weight_gradients: "weight gradients",
  workspace: "workspace",
  rounding: "rounding",
  unattributed: "unattributed",
};

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
  if (group.trainable === null) return group.category === "weights" ? "weights, frozen or trainable" : LABELS[group.category];
  return `${LABELS[group.category]}, ${group.trainable ? "trainable" : "frozen"}`;
}

export const categoryLabel = (category: Category): string => LABELS[category];
export const categoryMeaning = (category: Category): string => MEANINGS[category];

/** The group of the stack that an owner belongs to: only weights are split into frozen and trainable. */
export const groupOfOwner = ({ category, trainable }: Group): Group => ({
  category,
  trainable: category === "weights" ? trainable : null,
});

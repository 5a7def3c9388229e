/** The categories of memory, in the order of the stack: what stays lies at the bottom, what moves on top. */

export const CATEGORIES = [
  "weights",
  "optimizer_state",
  "other_state",
  "inputs",
  "activations",
  "activation_gradients",
  "weight_gradients",
  "workspace",
  "unattributed",
] as const;
export type Category = (typeof CATEGORIES)[number];

/** Trainable is a second dimension: null where it means nothing. */
export interface Group {
  category: Category;
  trainable: boolean | null;
}

const LABELS: Record<Category, string> = {
  weights: "weights",
  optimizer_state: "optimizer state",
  other_state: "other state",
  inputs: "inputs",
  activations: "activations",
  activation_gradients: "activation gradients",
  weight_gradients: "weight gradients",
  workspace: "workspace",
  unattributed: "unattributed",
};

const MEANINGS: Record<Category, string> = {
  weights: "the layers' variables: elements × size of the dtype",
  optimizer_state: "the optimizer's slots, such as Adam's two moments; only for trainable weights",
  other_state: "metrics, seeds, accumulators and constants",
  inputs: "the batch that the step reads",
  activations: "forward results that wait for the backward pass",
  activation_gradients: "gradients with respect to activations, on their way back",
  weight_gradients: "gradients with respect to weights, before the optimizer applies them",
  workspace: "an operation's temporary, cuDNN scratch, forward results already dead at the end of the forward pass",
  unattributed: "in use, but nothing recorded says by whom",
};

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

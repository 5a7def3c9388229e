/** The model's layer table at a step. */

/** How the backward pass computes a layer a second time: exactly, or with statistics updated and random numbers drawn again. */
export const RECOMPUTED = ["exact", "anew"] as const;
export type Recomputed = (typeof RECOMPUTED)[number];

export interface LayerRow {
  path: string;
  type: string;
  trainable: boolean;
  parameters: number;
  weight_bytes: number;
  trainable_weight_bytes: number;
  optimizer_bytes: number;
  output_shape: number[] | null;
  output_dtype: string | null;
  output_bytes: number | null;
  /** Null: the backward pass does not compute it again. */
  recomputed: Recomputed | null;
}

export type Training = "frozen" | "trainable" | "no weights";

/** A layer without weights is neither frozen nor trainable, whatever its flag: counts of layers leave it out. */
export const trainingOf = ({ trainable, weight_bytes }: Pick<LayerRow, "trainable" | "weight_bytes">): Training =>
  weight_bytes === 0 ? "no weights" : trainable ? "trainable" : "frozen";

export interface LayersAnswer {
  run: string;
  step: number;
  reason: string;
  optimizer: string | null;
  other_optimizer_bytes: number;
  other_state_bytes: number;
  layers: LayerRow[];
}

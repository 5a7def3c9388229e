/** The formula behind each figure of a layer: how its bytes follow from shapes, dtypes and the optimizer. */

import { formatCount, formatExact } from "../lib/bytes";
import { ROUNDING_MEANING, type Category } from "./categories";
import type { LayerRow } from "./layers";

const DTYPE_BYTES: Record<string, number> = {
  float64: 8,
  float32: 4,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  int8: 1,
  uint8: 1,
  bool: 1,
  complex128: 16,
  complex64: 8,
  uint64: 8,
  uint32: 4,
  uint16: 2,
};

/** Bytes of one element, null for an unknown dtype. */
export const dtypeBytes = (dtype: string): number | null => DTYPE_BYTES[dtype] ?? null;

/** Bytes of the output for one example, null if a dimension or the dtype is unknown. */
export function exampleBytes({ output_shape: shape, output_dtype: dtype }: LayerRow): number | null {
  const size = DTYPE_BYTES[dtype ?? ""];
  if (shape === null || size === undefined || shape.slice(1).some((one) => one < 0)) return null;
  return shape.slice(1).reduce((product, one) => product * one, size);
}

/** "2", "0.5", "1.3": how many times `one` is in `bytes`. */
function times(bytes: number, one: number): string {
  const ratio = bytes / one;
  return Number.isInteger(ratio) || ratio >= 100 ? formatCount(ratio) : String(Number(ratio.toPrecision(2)));
}

const approximately = (bytes: number, one: number): string => (bytes % one === 0 ? "=" : "≈");

function ofWeights(layer: LayerRow): string {
  const { parameters, weight_bytes: bytes } = layer;
  if (parameters === 0 || bytes === 0) return "as traced; no weights in the layer table";
  return `${formatCount(parameters)} parameters × ${times(bytes, parameters)} B = ${formatExact(bytes)}`;
}

function ofOutput(layer: LayerRow, bytes: number, batch: number | null): string {
  const one = exampleBytes(layer);
  if (one === null || one === 0) return "as traced; output size unknown";
  const sizes = [...(batch === null ? [] : [batch]), ...(layer.output_shape ?? []).slice(1)].join(" × ");
  const whole = one * (batch ?? 1);
  const of = batch === null ? "the output of one example" : `the output of a batch of ${formatCount(batch)}`;
  return `${approximately(bytes, whole)} ${times(bytes, whole)} × ${of}, ${sizes} × ${layer.output_dtype ?? ""} = ${formatExact(whole)}`;
}

/** The step whose bytes a formula explains. */
export interface FormulaStep {
  optimizer: string | null;
  batch_size: number | null;
}

/** The formula of a category's bytes in a layer; "as traced" where none is known. */
export function formula(category: Category, layer: LayerRow | null, bytes: number, { optimizer, batch_size }: FormulaStep): string {
  if (category === "rounding") return ROUNDING_MEANING;
  if (layer === null) return "as traced; the layer is not in the layer table";
  const trainable = layer.trainable_weight_bytes;
  switch (category) {
    case "weights":
      return ofWeights(layer);
    case "optimizer_state":
      if (trainable === 0 || layer.optimizer_bytes === 0) return "as traced";
      return `${optimizer ?? "the optimizer"} keeps ${times(layer.optimizer_bytes, trainable)} × the trainable weights, ${formatExact(trainable)} = ${formatExact(layer.optimizer_bytes)}`;
    case "weight_gradients":
      return trainable === 0
        ? "as traced"
        : `${approximately(bytes, trainable)} ${times(bytes, trainable)} × the trainable weights, ${formatExact(trainable)}`;
    case "activations":
    case "activation_gradients":
      return ofOutput(layer, bytes, batch_size);
    default:
      return "as traced";
  }
}

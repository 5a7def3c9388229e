/** The formula behind each figure of a layer: how its bytes follow from shapes, dtypes and the optimizer. */

import { formatBytes, formatCount, formatExact } from "../lib/bytes";
import type { Category } from "./categories";
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
};

/** Bytes of the output for one example, null if a size of it is not known. */
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
  if (parameters === 0 || bytes === 0) return "as traced; the layer table knows no weights of it";
  return `${formatCount(parameters)} parameters × ${times(bytes, parameters)} B = ${formatExact(bytes)}`;
}

function ofOutput(layer: LayerRow, bytes: number): string {
  const one = exampleBytes(layer);
  if (one === null || one === 0) return "as traced; the size of the layer's output is not known";
  const sizes = (layer.output_shape ?? []).slice(1).join(" × ");
  return `${approximately(bytes, one)} ${times(bytes, one)} × the output of one example, ${sizes} × ${layer.output_dtype ?? ""} = ${formatExact(one)}`;
}

/** Why a category of a layer has the bytes that were asked for; in the words of what is known, never a guess. */
export function formula(category: Category, layer: LayerRow | null, optimizer: string | null, bytes: number): string {
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
      return ofOutput(layer, bytes);
    default:
      return "as traced";
  }
}

/** The formula of allocated bytes, and what of them is rounding. */
export const formulaText = (
  category: Category,
  layer: LayerRow | null,
  optimizer: string | null,
  bytes: number,
  rounding: number,
): string => [formula(category, layer, optimizer, bytes - rounding), roundingText(rounding)].filter(Boolean).join("; ");

/** "rounding 512 B", empty where there is none or where it is not known. */
export const roundingText = (rounding: number | null): string => (rounding ? `${formatBytes(rounding)} of it rounding` : "");

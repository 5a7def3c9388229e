/** The answer with a plan, checked. */

import { CATEGORIES } from "../model/categories";
import { TIME_SOURCES, type Plan, type PlanOption, type PlanPoint, type PlainRow } from "../model/what-if";
import { flag, list, maybe, number, object, oneOf, text } from "./check";

const row = object<PlainRow>({ layer: maybe(text), category: oneOf(CATEGORIES), trainable: maybe(flag), bytes: number });
const range = { peak_bytes: number, low_bytes: number, high_bytes: number };

const plan = object<Plan>({
  run: text,
  device: text,
  model: text,
  budget_bytes: number,
  fits: maybe(flag),
  segments: list(list(text)),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  recorded_peak_bytes: maybe(number),
  demand_bytes: maybe(number),
  extra_time: maybe(number),
  time_source: oneOf(TIME_SOURCES),
  code: text,
  options: list(object<PlanOption>({ kind: text, sentence: text, ...range, fits: flag, extra_time: maybe(number) })),
  curve: list(object<PlanPoint>({ ...range, extra_time: number, segments: number })),
  ledger: list(row),
  sentences: list(text),
  measured: maybe(object<NonNullable<Plan["measured"]>>({ step: number, in_use_bytes: number, ledger: list(row) })),
});
export const parsePlan = (json: unknown): Plan => plan(json, "plan");

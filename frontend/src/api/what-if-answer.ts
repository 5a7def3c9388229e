/** The answer to a what-if question, checked. */

import { CATEGORIES } from "../model/categories";
import { METHODS, type CurvePoint, type FailedRequest, type PlainRow, type WhatIf } from "../model/what-if";
import { flag, list, maybe, number, object, oneOf, text } from "./check";

const row = object<PlainRow>({ layer: maybe(text), category: oneOf(CATEGORIES), trainable: maybe(flag), bytes: number });

const failed = maybe(
  object<FailedRequest>({ op: maybe(text), layer: maybe(text), requested_bytes: number, free_bytes: number, largest_free_bytes: number }),
);

const point = object<CurvePoint>({
  batch_size: number,
  peak_bytes: number,
  low_bytes: number,
  high_bytes: number,
  fits: maybe(flag),
  fails_at: failed,
});

const whatIf = object<WhatIf>({
  run: text,
  device: text,
  batch_size: maybe(number),
  capacity_bytes: maybe(number),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  fits: maybe(flag),
  sentence: text,
  fails_at: failed,
  enough_capacity_bytes: maybe(number),
  largest_batch_size: maybe(number),
  method: oneOf(METHODS),
  reproduced: object<WhatIf["reproduced"]>({ addresses: number, of: number }),
  assumptions: list(text),
  recorded: object<WhatIf["recorded"]>({ batch_sizes: list(number), steps: list(number), peak_bytes: maybe(number) }),
  ledger: list(row),
  curve: list(point),
  measured: maybe(object<NonNullable<WhatIf["measured"]>>({ step: number, in_use_bytes: number, ledger: list(row) })),
});
export const parseWhatIf = (json: unknown): WhatIf => whatIf(json, "what_if");

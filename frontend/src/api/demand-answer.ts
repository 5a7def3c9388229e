/** The answer with the parts of a peak, checked. */

import type { Demand } from "../model/pool";
import { PHASES } from "../model/run";
import { list, maybe, number, object, oneOf, text } from "./check";

const answer = object<{ demand: Demand | null }>({
  demand: maybe(
    object<Demand>({
      step: number,
      phase: oneOf(PHASES),
      peak_bytes: number,
      demand_bytes: number,
      rounding_bytes: number,
      unsplit_bytes: number,
      sentences: list(text),
    }),
  ),
});
export const parseDemand = (json: unknown): { demand: Demand | null } => answer(json, "demand");

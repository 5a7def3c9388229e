/** The choices that show an answer's evidence. Pure. */

import type { Evidence } from "../../model/answer";
import type { RunInfo } from "../../model/run";
import type { Choices } from "../../state/address";
import { supports } from "../../state/views";

/** Choices without a part that the evidence does not name stay; the whole range is shown unless it names steps. */
export function choicesFor({ view, step, phase, other_step, category, layer, zoom, oom }: Evidence, run: RunInfo): Partial<Choices> {
  if (supports(view, "failure")) return { view, oom: oom ?? 0, mapZooms: [] };
  const [first, last] = zoom ?? [];
  return {
    view,
    zoom: first !== undefined && last !== undefined ? [first, last] : null,
    // The answers are about the run, not about one attempt.
    session: null,
    ...(step !== null && { step }),
    ...(phase !== null && run.phases.includes(phase) && { phase }),
    ...(category !== null && { category }),
    ...(layer !== null && { layer }),
    ...(other_step !== null && { other: run.run, otherStep: other_step }),
  };
}

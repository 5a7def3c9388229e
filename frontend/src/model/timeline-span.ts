/** What happens between two moments of a step. */

import { groupKey, type Group } from "./categories";
import { groupOfOwner, ownerOfRow, type Timeline } from "./timeline";

/** Bytes that a part of a span allocates and frees, and how many allocations that are. */
interface Flow {
  allocated_bytes: number;
  freed_bytes: number;
  allocated: number;
  freed: number;
}

export interface SpanStatistics extends Flow {
  /** Highest bytes in use, and the moment of it. */
  peak_bytes: number;
  peak: number;
  /** Numbers of the largest tensors that the span allocates. */
  largest: number[];
  /** By category, those with the most bytes allocated and freed first. */
  groups: (Flow & { group: Group })[];
}

/** Tensors that are named. */
const LARGEST = 5;

const none = (): Flow => ({ allocated_bytes: 0, freed_bytes: 0, allocated: 0, freed: 0 });

/**
 * Statistics from the first to the last moment of a span, both with their events. What lives before the step is not allocated in it.
 *
 * @param total Bytes in use at each moment.
 */
export function spanStatistics(timeline: Timeline, total: Float64Array, [first, last]: readonly [number, number]): SpanStatistics {
  const all = none();
  const groups = new Map<string, Flow & { group: Group }>();
  const tensors = new Map<number, number>();
  const isIn = (moment: number): boolean => moment >= Math.max(first, 1) && moment <= last;
  for (let row = 0; row < timeline.rows; row += 1) {
    const [born, gone] = [isIn(timeline.start[row] ?? 0), isIn(timeline.end[row] ?? 0)];
    if (!born && !gone) continue;
    const group = groupOfOwner(ownerOfRow(timeline, row));
    const own = groups.get(groupKey(group)) ?? { ...none(), group };
    groups.set(groupKey(group), own);
    const bytes = timeline.bytes[row] ?? 0;
    // An allocation is counted once, not again with its rounding.
    const count = group.category === "rounding" ? 0 : (timeline.count[row] ?? 0);
    for (const flow of [all, own]) {
      if (born) [flow.allocated_bytes, flow.allocated] = [flow.allocated_bytes + bytes, flow.allocated + count];
      if (gone) [flow.freed_bytes, flow.freed] = [flow.freed_bytes + bytes, flow.freed + count];
    }
    const tensor = timeline.tensor[row] ?? 0;
    if (born) tensors.set(tensor, (tensors.get(tensor) ?? 0) + bytes);
  }
  let peak = first;
  for (let moment = first; moment <= last; moment += 1) if ((total[moment] ?? 0) > (total[peak] ?? 0)) peak = moment;
  const moved = (flow: Flow): number => flow.allocated_bytes + flow.freed_bytes;
  return {
    ...all,
    peak,
    peak_bytes: total[peak] ?? 0,
    largest: [...tensors]
      .sort((a, b) => b[1] - a[1])
      .slice(0, LARGEST)
      .map(([tensor]) => tensor),
    groups: [...groups.values()].sort((a, b) => moved(b) - moved(a)),
  };
}

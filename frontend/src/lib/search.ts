/**
 * Index of the value nearest to `target` in an ascending array, the earlier of two; -1 if it is
 * empty.
 */
export function nearestIndex(ascending: ArrayLike<number>, target: number): number {
  const after = lowerBound(ascending, target);
  if (after === 0) return ascending.length > 0 ? 0 : -1;
  if (after === ascending.length) return after - 1;
  const before = after - 1;
  return target - (ascending[before] as number) <= (ascending[after] as number) - target
    ? before
    : after;
}

/**
 * Index of the first value that is not below `target`, among those from `first` to before `end`.
 */
export function lowerBound(
  ascending: ArrayLike<number>,
  target: number,
  first = 0,
  end = ascending.length,
): number {
  let low = first;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ascending[middle] as number) < target) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The value, or the end that it lies beyond. */
export const clamp = (value: number, least: number, most: number): number =>
  Math.min(Math.max(value, least), most);

export const maximum = (column: Float64Array): number =>
  column.reduce((most, value) => (value > most ? value : most), 0);

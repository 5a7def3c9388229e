/** Short names of layer paths. */

/** Stands for a layer's name where memory has none. */
export const NOT_TIED = "not tied to a layer";

/** The last parts of a path. */
export const tail = (path: string, parts: number): string => path.split("/").slice(-parts).join("/");

/** The last part of a path. */
export const shortName = (path: string): string => tail(path, 1) || path;

/** For each path the shortest end that no other of them has: "layer_03/attention" where "attention" would not do. */
export function distinctNames(paths: readonly string[]): string[] {
  const longest = Math.max(1, ...paths.map((path) => path.split("/").length));
  const names = paths.map(shortName);
  for (let parts = 2; parts <= longest; parts += 1) {
    const counts = new Map<string, number>();
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
    names.forEach((name, index) => {
      if ((counts.get(name) ?? 0) > 1) names[index] = tail(paths[index] as string, parts);
    });
  }
  return names;
}

/** The distinct name of each path. */
export function namesOf(paths: readonly string[]): Map<string, string> {
  const names = distinctNames(paths);
  return new Map(paths.map((path, index) => [path, names[index] ?? path]));
}

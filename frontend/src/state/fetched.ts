/** Fetches what the shown view needs, and keeps it as long. */

import { computed, effect, type ReadonlySignal } from "@preact/signals";

import { NOTHING, nearer, type Loaded, type Resource } from "./resource";
import type { Span } from "./resources";

/** Fetches what `questions` gives, and keeps it until it gives something else. */
export function keepFetched<Args extends unknown[], T>(resource: Resource<Args, T>, questions: () => readonly Args[]): void {
  effect(() => {
    const wanted = questions();
    resource.keep(wanted);
    for (const one of wanted) resource.want(...one);
  });
}

const readOrNothing = <Args extends unknown[], T>(resource: Resource<Args, T>, question: Args | null): Loaded<T> =>
  question === null ? NOTHING : resource.read(...question);

/** The answer to the question of the moment, which is fetched while it is `needed`. */
export function fetchedWhile<Args extends unknown[], T>(
  resource: Resource<Args, T>,
  needed: () => boolean,
  question: () => Args | null,
): ReadonlySignal<Loaded<T>> {
  keepFetched(resource, () => {
    const one = needed() ? question() : null;
    return one === null ? [] : [one];
  });
  return computed(() => readOrNothing(resource, question()));
}

/** The same for columns over steps: of all steps, and of those in the zoom with every step that fits. */
export function fetchedOverSteps<Args extends unknown[], T extends { rows: number }>(
  resource: Resource<Args, T>,
  needed: () => boolean,
  question: (span: Span) => Args | null,
  zoom: () => Span,
) {
  keepFetched(resource, () => {
    if (!needed()) return [];
    return [null, ...(zoom() === null ? [] : [zoom()])].flatMap((span) => {
      const one = question(span);
      return one === null ? [] : [one];
    });
  });
  const whole = computed(() => readOrNothing(resource, question(null)));
  const shown = computed(() => (zoom() === null ? whole.value : nearer(whole.value, readOrNothing(resource, question(zoom())))));
  return { whole, shown };
}

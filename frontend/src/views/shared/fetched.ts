/** What a view fetches itself. */

import { useLayoutEffect } from "preact/hooks";

import { NOTHING, type Loaded, type Resource } from "../../state/resource";

/** The answer to a question, fetched while the view shows it; nothing for no question. */
export function useFetched<Args extends unknown[], T>(resource: Resource<Args, T>, question: Args | null): Loaded<T> {
  useLayoutEffect(() => {
    if (question) resource.want(...question);
  }, [resource, question && resource.identity(...question)]);
  return question ? resource.read(...question) : NOTHING;
}

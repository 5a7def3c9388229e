/** What Escape clears, one choice at a time, after it has left the page of a layer. */

import type { Choices } from "./address";
import { VIEWS, supports } from "./views";

interface Clearing {
  /** As the list of shortcuts names it. */
  name: string;
  /** Null if there is nothing to clear. */
  clear(choices: Choices): Partial<Choices> | null;
}

const CLEARINGS: readonly Clearing[] = [
  { name: "selected layer", clear: ({ layer }) => (layer !== null ? { layer: null } : null) },
  { name: "selected category", clear: ({ category }) => (category !== null ? { category: null } : null) },
  { name: "selected tensor", clear: ({ view, tensor }) => (supports(view, "moment") && tensor !== null ? { tensor: null } : null) },
  { name: "selected moment", clear: ({ view, moment }) => (supports(view, "moment") && moment !== null ? { moment: null } : null) },
  { name: "selected span", clear: ({ view, selection }) => (supports(view, "moment") && selection !== null ? { selection: null } : null) },
  { name: "zoom of the timeline", clear: ({ view, span }) => (supports(view, "moment") && span !== null ? { span: null } : null) },
  { name: "selected step", clear: ({ step }) => (step !== null ? { step: null } : null) },
  { name: "zoom", clear: ({ zoom, mapZooms }) => (zoom !== null || mapZooms.length > 0 ? { zoom: null, mapZooms: [] } : null) },
];

/** "selected layer, selected category, …", in the order in which Escape clears them. */
export const CLEARED_IN_ORDER = CLEARINGS.map(({ name }) => name).join(", ");

/** The choices that one press of Escape changes; empty if nothing is left to clear. */
export function cleared(choices: Choices): Partial<Choices> {
  const { parent } = VIEWS[choices.view];
  if (parent !== undefined) return { view: parent };
  for (const { clear } of CLEARINGS) {
    const changed = clear(choices);
    if (changed) return changed;
  }
  return {};
}

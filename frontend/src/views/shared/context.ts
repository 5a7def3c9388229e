import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { Store } from "../../state/store";
import { INKS, type Ink, type Scheme } from "../../theme/palette";

export const StoreContext = createContext<Store | null>(null);

export function useStore(): Store {
  const store = useContext(StoreContext);
  if (!store) throw new Error("No store around this view.");
  return store;
}

/** Light or dark; reading it in a component subscribes to it. */
export const schemeOf = (store: Store): Scheme => (store.dark.value ? "dark" : "light");
export const inkOf = (store: Store): Ink => INKS[schemeOf(store)];

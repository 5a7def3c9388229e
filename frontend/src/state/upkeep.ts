/** Keeps the page up to date: TensorBoard's reload, an own poll while visible, dark mode, addresses that others write. */

import { touch } from "../lib/activity";
import { followDarkMode, isVisible, onAddress, onReload } from "./host";
import type { Store } from "./store";

/** TensorBoard's own reload is off by default and at least 30 s apart: too slow to watch a training. */
const POLL_MS = 5000;

export function keepUp(store: Store): void {
  followDarkMode((dark) => {
    store.dark.value = dark;
    document.documentElement.dataset.scheme = dark ? "dark" : "light";
    touch();
  });
  onAddress(store.follow);
  onReload(() => void store.reload());
  window.setInterval(() => {
    if (isVisible()) void store.poll();
  }, POLL_MS);
  void store.reload();
}

/**
 * Keeps the page up to date: dark mode, addresses that others write and, where the data is live, TensorBoard's reload and an own poll
 * while visible.
 */

import { touch } from "../lib/activity";
import { followDarkMode, isVisible, onAddress, onReload } from "./host";
import type { Store } from "./store";

/** TensorBoard's own reload is off by default and at least 30 s apart: too slow to watch a training. */
const POLL_MS = 5000;

export function keepUp(store: Store, live: boolean): void {
  followDarkMode((dark) => {
    store.dark.value = dark;
    document.documentElement.dataset.scheme = dark ? "dark" : "light";
    touch();
  });
  onAddress(store.follow);
  void store.reload();
  if (!live) return;
  onReload(() => void store.reload());
  window.setInterval(() => {
    if (isVisible()) void store.poll();
  }, POLL_MS);
}

/**
 * Keeps the page up to date: dark mode, addresses that others write and, where the data is live, TensorBoard's reload and an own poll
 * while visible.
 */

import { computed, effect } from "@preact/signals";

import { later, touch } from "../lib/activity";
import { followDarkMode, isVisible, onAddress, onReload } from "./host";
import type { Store } from "./store";

/** TensorBoard's own reload is off by default and at least 30 s apart: too slow to watch a training. */
const POLL_MS = 5000;
/** The server itself waits for a run that is being read, up to a second. */
const SOON_MS = 200;

/** Polls until the shown run has been read: there is nothing to show before. The page is busy meanwhile. */
function pollWhileRead(store: Store): void {
  const reading = computed(() => store.primary.value?.status === "reading" && store.answer.value.error === null);
  const again = (): unknown => reading.peek() && later(SOON_MS, () => void store.poll().then(again));
  effect(() => void (reading.value && again()));
}

export function keepUp(store: Store, live: boolean): void {
  followDarkMode((dark) => {
    store.dark.value = dark;
    document.documentElement.dataset.scheme = dark ? "dark" : "light";
    touch();
  });
  onAddress(store.follow);
  void store.reload();
  if (!live) return;
  pollWhileRead(store);
  onReload(() => void store.reload());
  window.setInterval(() => {
    if (isVisible()) void store.poll();
  }, POLL_MS);
}

/** TensorBoard around the page. Its interface is undocumented, so each use has a fallback. A report and `tb-memplugin view` have none. */

const KEY = "p.tb_memplugin.at";

interface TfStorage {
  getString(key: string): string;
  setString(key: string, value: string, options: { defaultValue: string; useLocationReplace: boolean }): void;
  addHashListener?(listener: () => void): void;
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

function storage(): TfStorage | null {
  return attempt(() => {
    if (window.parent === window) return null;
    const host = (window.parent as unknown as { tensorboard?: { tf_storage?: TfStorage } }).tensorboard;
    return host?.tf_storage ?? null;
  });
}

/** The page's part of the address: TensorBoard's hash if it can be reached, else the document's own. */
export function readAddress(): string {
  const kept = attempt(() => storage()?.getString(KEY) ?? null);
  return kept ?? window.location.hash.replace(/^#/, "");
}

export function writeAddress(text: string): void {
  const host = storage();
  if (host && attempt(() => (host.setString(KEY, text, { defaultValue: "", useLocationReplace: true }), true))) return;
  attempt(() => window.history.replaceState(null, "", `${window.location.pathname}${window.location.search}#${text}`));
}

/** Writes an address so that the browser's Back button returns to the one before it. */
export function writeNextAddress(leaving: string, text: string): void {
  // An empty text would be read as another tab's address.
  writeAddress(leaving);
  attempt(() => {
    const { history, location } = storage() ? window.parent : window;
    history.pushState(history.state, "", location.href);
  });
  writeAddress(text);
}

/** Calls `listener` when the address changes from outside, as by the back button or a pasted link. */
export function onAddress(listener: () => void): void {
  attempt(() => storage()?.addHashListener?.(listener));
  window.addEventListener("hashchange", listener);
}

/** Lets TensorBoard's reload button, and its timer, reload this page's data. */
export function onReload(listener: () => void): void {
  attempt(() => {
    const frame = window.frameElement as (Element & { reload?: () => void }) | null;
    if (frame) frame.reload = listener;
  });
}

/** TensorBoard hides a tab by making its frame 0 pixels high; the document itself stays "visible". */
export const isVisible = (): boolean => document.visibilityState === "visible" && window.innerHeight > 0;

/** `darkMode` of the document's own address, TensorBoard's name for it; null if it is not given. */
function darkAsked(): boolean | null {
  const asked = new URLSearchParams(window.location.search).get("darkMode");
  return asked === "true" ? true : asked === "false" ? false : null;
}

function darkNow(): boolean {
  const host = attempt(() => (window.parent === window ? darkAsked() : window.parent.document.body.classList.contains("dark-mode")));
  return host ?? window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Reports whether to be dark, now and after every change. */
export function followDarkMode(listener: (dark: boolean) => void): void {
  const report = (): void => listener(darkNow());
  attempt(() => {
    if (window.parent === window) return;
    new MutationObserver(report).observe(window.parent.document.body, { attributes: true, attributeFilter: ["class"] });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", report);
  report();
}

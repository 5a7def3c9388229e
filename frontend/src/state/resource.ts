/** Answers by key, each with the version of the run that it was fetched for. Old values stay until new ones arrive. */

import { signal, type Signal } from "@preact/signals";

import { busy } from "../lib/activity";

export interface Loaded<T> {
  value: T | null;
  error: string | null;
  loading: boolean;
}

export const NOTHING: Loaded<never> = { value: null, error: null, loading: false };

interface Entry<T> {
  state: Signal<Loaded<T>>;
  version: string;
  load: (signal: AbortSignal) => Promise<T>;
  abort: AbortController | null;
  /** Arrived while values were held back. */
  held: T | null;
}

export class Resource<T> {
  private readonly entries = new Map<string, Entry<T>>();
  private holding = false;

  constructor(private readonly fetchQueue: <R>(work: () => Promise<R>) => Promise<R>) {}

  /** The state of a key; reading it in a component or an effect subscribes to it. */
  read(key: string): Loaded<T> {
    return this.entry(key).state.value;
  }

  /** Fetches unless this version is there or on its way. */
  want(key: string, version: string, load: (signal: AbortSignal) => Promise<T>): void {
    const entry = this.entry(key);
    entry.load = load;
    if (entry.version === version) return;
    entry.version = version;
    void this.fetch(entry);
  }

  retryFailed(): void {
    for (const entry of this.entries.values()) if (entry.state.peek().error !== null) void this.fetch(entry);
  }

  /** Forgets all but the given keys. */
  keep(keys: ReadonlySet<string>): void {
    for (const [key, entry] of this.entries) {
      if (keys.has(key)) continue;
      entry.abort?.abort();
      this.entries.delete(key);
    }
  }

  /** Stops fetching all but the given key: nobody waits for the other answers any more. */
  only(key: string): void {
    for (const [other, entry] of this.entries) {
      if (other === key || !entry.state.peek().loading) continue;
      entry.abort?.abort();
      entry.version = "";
      entry.state.value = { ...entry.state.peek(), loading: false };
    }
  }

  /** While held, new values of keys that have one wait, so that nothing moves under the pointer. */
  hold(holding: boolean): void {
    this.holding = holding;
    if (holding) return;
    for (const entry of this.entries.values()) {
      if (entry.held === null) continue;
      entry.state.value = { value: entry.held, error: null, loading: false };
      entry.held = null;
    }
  }

  private entry(key: string): Entry<T> {
    const known = this.entries.get(key);
    if (known) return known;
    const made: Entry<T> = {
      state: signal<Loaded<T>>({ value: null, error: null, loading: false }),
      version: "",
      load: () => Promise.reject(new Error("Nothing to load.")),
      abort: null,
      held: null,
    };
    this.entries.set(key, made);
    return made;
  }

  private async fetch(entry: Entry<T>): Promise<void> {
    entry.abort?.abort();
    const abort = new AbortController();
    entry.abort = abort;
    entry.state.value = { ...entry.state.peek(), error: null, loading: true };
    try {
      const value = await busy(this.fetchQueue(() => entry.load(abort.signal)));
      if (abort.signal.aborted) return;
      if (this.holding && entry.state.peek().value !== null) {
        entry.held = value;
        entry.state.value = { ...entry.state.peek(), loading: false };
      } else entry.state.value = { value, error: null, loading: false };
    } catch (fault) {
      if (abort.signal.aborted) return;
      const error = fault instanceof Error ? fault.message : String(fault);
      entry.state.value = { ...entry.state.peek(), error, loading: false };
    }
  }
}

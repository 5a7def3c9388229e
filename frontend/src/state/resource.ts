/**
 * Answers to one kind of question, each with the version of the run that it was fetched for. An old
 * answer stays until the new one arrives. Answers that are not in use may be dropped: what a view
 * or an effect reads, and what `keep` names, is in use. So whoever calls `want` also reads the
 * answer or names it in `keep`; otherwise it may be gone by the time it is read.
 */

import { signal, type Signal } from "@preact/signals";

import { Refused } from "../api/source";
import { busy } from "../lib/activity";

/** Of an object or an array itself, and of each of its fields. */
const OBJECT_BYTES = 32;
const FIELD_BYTES = 8;

/**
 * Of plain data: what it holds more than once counts once, and every character of a text one byte.
 */
export function footprint(value: unknown): number {
  const counted = new Set<object>();
  const left: unknown[] = [value];
  let bytes = 0;
  while (left.length > 0) {
    const one = left.pop();
    if (typeof one === "string") bytes += one.length;
    if (typeof one !== "object" || one === null || counted.has(one)) continue;
    counted.add(one);
    if (ArrayBuffer.isView(one)) left.push(one.buffer);
    else if (one instanceof ArrayBuffer) bytes += one.byteLength;
    else {
      const held = Array.isArray(one) ? one : Object.values(one);
      bytes += OBJECT_BYTES + held.length * FIELD_BYTES;
      // Numbers hold nothing else, and there may be very many.
      for (const part of held) if (typeof part !== "number") left.push(part);
    }
  }
  return bytes;
}

export interface Loaded<T> {
  value: T | null;
  error: string | null;
  /** The parameter of the question that the error is about, if it is one alone. */
  parameter?: string;
  loading: boolean;
}

export const NOTHING: Loaded<never> = { value: null, error: null, loading: false };

/**
 * What is shown of a zoom: its own answer if that has rows, and the answer for the whole until it
 * has arrived.
 */
export function nearer<T extends { rows: number }>(whole: Loaded<T>, near: Loaded<T>): Loaded<T> {
  if (near.value && near.value.rows > 0) return near;
  return {
    value: whole.value,
    error: near.error ?? whole.error,
    loading: whole.loading || near.loading,
  };
}

interface Question<Args extends unknown[], T> {
  key: (...args: Args) => unknown;
  /** Changes when there may be another answer. */
  version: (...args: Args) => string;
  load: (abort: AbortSignal, ...args: Args) => Promise<T>;
}

interface Entry<T> extends Kept {
  state: Signal<Loaded<T>>;
  version: string;
  load: (signal: AbortSignal) => Promise<T>;
  abort: AbortController | null;
  /** Arrived while values were held back. */
  held: T | null;
  /**
   * Whether a view, an effect or something derived that one of them reads is subscribed to the
   * state.
   */
  watched: boolean;
}

const ENTRY_BYTES = 1024;

export class Resource<Args extends unknown[], T> {
  private readonly entries = new Map<string, Entry<T>>();
  private pinned: ReadonlySet<string> = new Set();
  private holding = false;

  constructor(
    private readonly question: Question<Args, T>,
    private readonly shelf: Shelf,
    private readonly fetchQueue: <R>(work: () => Promise<R>) => Promise<R>,
  ) {}

  /** The state of an answer; reading it in a component or an effect subscribes to it. */
  read(...args: Args): Loaded<T> {
    return this.entry(this.keyOf(args)).state.value;
  }

  /** Equal texts for questions whose answer is the same, so that it need not be fetched again. */
  identity(...args: Args): string {
    return JSON.stringify([this.keyOf(args), this.question.version(...args)]);
  }

  want(...args: Args): void {
    const entry = this.entry(this.keyOf(args));
    const version = this.question.version(...args);
    this.shelf.use(entry);
    entry.load = (abort) => this.question.load(abort, ...args);
    if (entry.version === version) return;
    entry.version = version;
    void this.fetch(entry);
  }

  /**
   * Fetches the answers that failed and are in use; forgets the others, so that they are fetched
   * when they are wanted again.
   */
  retryFailed(): void {
    for (const entry of [...this.entries.values()]) {
      if (entry.state.peek().error === null) continue;
      if (entry.inUse()) void this.fetch(entry);
      else {
        this.shelf.remove(entry);
        entry.drop();
      }
    }
  }

  /**
   * Names all questions whose answers are in use though nothing reads them, and stops fetching the
   * others: nobody waits for them.
   */
  keep(questions: readonly Args[]): void {
    this.pinned = new Set(questions.map((args) => this.keyOf(args)));
    for (const [key, entry] of this.entries) {
      if (this.pinned.has(key) || !entry.state.peek().loading) continue;
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
      this.weigh(entry);
    }
  }

  private keyOf(args: Args): string {
    return JSON.stringify(this.question.key(...args));
  }

  private entry(key: string): Entry<T> {
    const known = this.entries.get(key);
    if (known) return known;
    const made: Entry<T> = {
      state: signal<Loaded<T>>(NOTHING, {
        watched: () => (made.watched = true),
        unwatched: () => {
          made.watched = false;
          this.shelf.use(made);
        },
      }),
      version: "",
      load: () => Promise.reject(new Error("Nothing to load.")),
      abort: null,
      held: null,
      watched: false,
      inUse: () => made.watched || this.pinned.has(key) || made.state.peek().loading,
      drop: () => {
        this.entries.delete(key);
        // What is derived from it notices, and reads the entry that takes its place.
        made.state.value = { ...NOTHING };
      },
    };
    this.entries.set(key, made);
    this.shelf.put(made, ENTRY_BYTES);
    return made;
  }

  private weigh(entry: Entry<T>): void {
    this.shelf.put(entry, ENTRY_BYTES + footprint([entry.state.peek().value, entry.held]));
  }

  private async fetch(entry: Entry<T>): Promise<void> {
    entry.abort?.abort();
    const abort = new AbortController();
    entry.abort = abort;
    entry.state.value = { value: entry.state.peek().value, error: null, loading: true };
    try {
      const value = await busy(this.fetchQueue(() => entry.load(abort.signal)));
      if (abort.signal.aborted) return;
      if (this.holding && entry.state.peek().value !== null) {
        entry.held = value;
        entry.state.value = { ...entry.state.peek(), loading: false };
      } else entry.state.value = { value, error: null, loading: false };
      this.weigh(entry);
      this.shelf.trim();
    } catch (fault) {
      if (abort.signal.aborted) return;
      const error = fault instanceof Error ? fault.message : String(fault);
      const about = fault instanceof Refused &&
        fault.parameter !== null && { parameter: fault.parameter };
      entry.state.value = { value: entry.state.peek().value, error, ...about, loading: false };
    }
  }
}

interface Kept {
  inUse(): boolean;
  drop(): void;
}

/**
 * Bounds the memory of what was fetched: drops what was not used for longest, but nothing that is
 * in use.
 */
export class Shelf {
  /** Their bytes; those used last are at the end. */
  private readonly kept = new Map<Kept, number>();
  private total = 0;

  /** `limitBytes` holds for everything, unless what is in use needs more. */
  constructor(private readonly limitBytes: number) {}

  get bytes(): number {
    return this.total;
  }

  put(one: Kept, bytes: number): void {
    this.remove(one);
    this.kept.set(one, bytes);
    this.total += bytes;
  }

  use(one: Kept): void {
    const bytes = this.kept.get(one);
    if (bytes !== undefined) this.put(one, bytes);
  }

  remove(one: Kept): void {
    this.total -= this.kept.get(one) ?? 0;
    this.kept.delete(one);
  }

  trim(): void {
    for (const one of [...this.kept.keys()]) {
      if (this.total <= this.limitBytes) return;
      if (one.inUse()) continue;
      this.remove(one);
      one.drop();
    }
  }
}

export function limiter(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= limit) await new Promise<void>((resume) => waiting.push(resume));
    running += 1;
    try {
      return await work();
    } finally {
      running -= 1;
      waiting.shift()?.();
    }
  };
}

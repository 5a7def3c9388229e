/** Bounds the memory of what was fetched: drops what was not used for longest, but nothing that is in use. */

/** Something that can be dropped. */
export interface Kept {
  inUse(): boolean;
  /** Lets its memory go; it is fetched again when wanted. */
  drop(): void;
}

export class Shelf {
  /** Their bytes; those used last are at the end. */
  private readonly kept = new Map<Kept, number>();
  private total = 0;

  /** `limitBytes` holds for everything, unless what is in use needs more. */
  constructor(private readonly limitBytes: number) {}

  get bytes(): number {
    return this.total;
  }

  /** Adds something, or says how large it has become. */
  put(one: Kept, bytes: number): void {
    this.remove(one);
    this.kept.set(one, bytes);
    this.total += bytes;
  }

  /** Marks something as used last. */
  use(one: Kept): void {
    const bytes = this.kept.get(one);
    if (bytes !== undefined) this.put(one, bytes);
  }

  remove(one: Kept): void {
    this.total -= this.kept.get(one) ?? 0;
    this.kept.delete(one);
  }

  /** Drops until the limit holds or everything left is in use. */
  trim(): void {
    for (const one of [...this.kept.keys()]) {
      if (this.total <= this.limitBytes) return;
      if (one.inUse()) continue;
      this.remove(one);
      one.drop();
    }
  }
}

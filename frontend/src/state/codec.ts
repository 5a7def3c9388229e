/** How one of the user's choices is written in the page's address, and read from it. */

/** `parse` gives the default for what it cannot read, and `print` writes nothing for the default. */
export interface Codec<T> {
  initial: T;
  print(value: T, out: URLSearchParams): void;
  parse(given: URLSearchParams): T;
}

/** A choice in one parameter. `read` gives null for what it cannot read; `write` is not called with the default. */
function inOne<T>(name: string, initial: T, read: (text: string) => T | null, write: (value: T) => string = String): Codec<T> {
  return {
    initial,
    print: (value, out) => {
      if (value !== initial) out.set(name, write(value));
    },
    parse: (given) => {
      const text = given.get(name);
      return (text === null ? null : read(text)) ?? initial;
    },
  };
}

const among = <T extends string>(allowed: readonly T[], text: string): T | null => allowed.find((item) => item === text) ?? null;

const wholeNumber = (text: string): number | null => (/^\d{1,15}$/.test(text) ? Number(text) : null);

type Span = readonly [number, number];

const spanText = ([first, last]: Span): string => `${first}-${last}`;

function readSpan(text: string): Span | null {
  const found = /^(\d{1,15})-(\d{1,15})$/.exec(text);
  if (!found) return null;
  const [first, last] = [Number(found[1]), Number(found[2])];
  return first <= last ? [first, last] : null;
}

/** One of a few words; `initial` by default. */
export const oneOf = <T extends string>(name: string, allowed: readonly T[], initial: T): Codec<T> =>
  inOne(name, initial, (text) => among(allowed, text));

/** One of a few words, or none of them by default. */
export const oneOrNone = <T extends string>(name: string, allowed: readonly T[]): Codec<T | null> =>
  inOne<T | null>(name, null, (text) => among(allowed, text));

/** One of a few words, or null, which has a word of its own. */
export const oneOrNamedNone = <T extends string>(name: string, allowed: readonly T[], initial: T, none: string): Codec<T | null> => ({
  initial,
  print: (value, out) => {
    if (value !== initial) out.set(name, value ?? none);
  },
  parse: (given) => {
    const written = given.get(name) ?? "";
    return written === none ? null : (among(allowed, written) ?? initial);
  },
});

/** Any text, empty by default. */
export const text = (name: string): Codec<string> => inOne(name, "", String);

/** A name, which may be empty, or none. */
export const nameOrNone = (name: string): Codec<string | null> => inOne<string | null>(name, null, String);

/** A whole number from 0. */
export const whole = (name: string): Codec<number> => inOne(name, 0, wholeNumber);
export const wholeOrNone = (name: string): Codec<number | null> => inOne<number | null>(name, null, wholeNumber);

/** A number above 0, such as "12.5", or none. */
export const sizeOrNone = (name: string): Codec<number | null> =>
  inOne<number | null>(name, null, (written) => {
    const found = Number(written);
    return /^\d/.test(written) && Number.isFinite(found) && found > 0 ? found : null;
  });

/** The first and the last of something, or none: "3-99". */
export const spanOrNone = (name: string): Codec<Span | null> =>
  inOne<Span | null>(name, null, readSpan, (value) => (value === null ? "" : spanText(value)));

/** Any number of spans, none of them empty. */
export const spans = (name: string): Codec<readonly Span[]> => ({
  initial: [],
  print: (value, out) => value.forEach((one) => out.append(name, spanText(one))),
  parse: (given) =>
    given.getAll(name).flatMap((written) => {
      const found = readSpan(written);
      return found && found[1] > found[0] ? [found] : [];
    }),
});

/** Yes or, by default, no. */
export const flag = (name: string): Codec<boolean> => ({
  initial: false,
  print: (value, out) => {
    if (value) out.set(name, "1");
  },
  parse: (given) => given.has(name),
});

/** A list of names, or null by default; an empty list has a parameter of its own. */
export const namesOrNone = (name: string, empty: string): Codec<string[] | null> => ({
  initial: null,
  print: (value, out) => {
    value?.forEach((one) => out.append(name, one));
    if (value?.length === 0) out.set(empty, "1");
  },
  parse: (given) => {
    const found = given.getAll(name);
    return given.has(empty) ? [] : found.length > 0 ? found : null;
  },
});

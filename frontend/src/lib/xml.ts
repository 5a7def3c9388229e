/** Characters of XML 1.0. */

const REPLACEMENT = "\ufffd";

const isAllowed = (code: number): boolean =>
  code === 0x9 || code === 0xa || code === 0xd || (code >= 0x20 && code <= 0xd7ff) || (code >= 0xe000 && code <= 0xfffd) || code >= 0x10000;

/** `text` with the characters replaced that no XML document may contain: control characters, halves of surrogate pairs. */
export const wellFormed = (text: string): string =>
  Array.from(text, (one) => (isAllowed(one.codePointAt(0) ?? 0) ? one : REPLACEMENT)).join("");

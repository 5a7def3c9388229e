/** What a document shows, as text: one line for each element that says or draws something. */

import { checksum, marksOf } from "./drawing";

/** Attributes that say nothing of their own, and those that repeat what the text says. */
const QUIET = new Set([
  "type",
  "autocomplete",
  "spellcheck",
  "xmlns",
  "focusable",
  "scope",
  "aria-hidden",
  "preserveAspectRatio",
  "data-testid",
]);

/** A line with the parts of an element is at most this long. */
const LINE = 260;

const rounded = (text: string): string =>
  text.replace(/-?\d+\.\d+/g, (number) => String(Math.round(Number(number) * 100) / 100));

/** Long parts of explanations that the text has told: told again by their beginning. */
const told = new Set<string>();
const LONG = 24;

function shortened(text: string): string {
  if (text.length <= LONG) return text;
  if (told.has(text)) return `${text.slice(0, LONG / 2)}…`;
  told.add(text);
  return text;
}

function attributesOf(element: Element): string {
  const said = [...element.attributes]
    .filter(({ name, value }) => !QUIET.has(name) && !(name === "class" && value.trim() === ""))
    .map(({ name, value }) =>
      name === "class"
        ? `.${value.trim().split(/\s+/).join(".")}`
        : `${name}="${rounded(value).split("\n").map(shortened).join(" | ")}"`,
    );
  // What the user sees of a field is a property.
  if (
    element instanceof HTMLInputElement ||
    element instanceof HTMLSelectElement ||
    element instanceof HTMLTextAreaElement
  )
    said.push(
      element instanceof HTMLInputElement && element.type === "checkbox"
        ? `checked=${element.checked}`
        : `value="${element.value}"`,
    );
  if (element === document.activeElement && element !== document.body) said.push("focused");
  return said.join(" ");
}

const textOf = (node: Node): string => (node.textContent ?? "").replace(/\s+/g, " ");

/**
 * Whether an element is a part of its sentence: it contains text alone and has no attributes but a
 * class.
 */
const isWords = (element: Element): boolean =>
  element.children.length === 0 &&
  element.attributes.length <= (element.hasAttribute("class") ? 1 : 0) &&
  /^(SPAN|B|I|EM|STRONG|CODE)$/.test(element.tagName);

function words(element: Element): string {
  const mark = element.getAttribute("class");
  return element.tagName === "SPAN" && !mark
    ? textOf(element)
    : `<${mark ? mark.trim().replace(/\s+/g, ".") : element.tagName.toLowerCase()}: ${textOf(element)}>`;
}

function lines(element: Element, depth: number, skip: readonly string[]): string[] {
  if (skip.some((selector) => element.matches(selector))) return [];
  const indent = " ".repeat(depth);
  const inner: string[] = [];
  let sentence = "";
  const end = (): void => {
    if (sentence.trim() !== "") inner.push(`${indent} ${sentence.trim()}`);
    sentence = "";
  };
  for (const child of element.childNodes) {
    if (child instanceof Element && !isWords(child)) {
      end();
      inner.push(...lines(child, depth + 1, skip));
    } else sentence += child instanceof Element ? words(child) : textOf(child);
  }
  end();
  if (element instanceof HTMLCanvasElement)
    inner.push(...marksOf(element).map((mark) => `${indent} ${mark}`));
  const tag = element.tagName.toLowerCase();
  const head = [/^(td|th|div|span)$/.test(tag) ? "" : tag, attributesOf(element)]
    .filter(Boolean)
    .join(" ");
  const parts = inner.map((line) => line.trim()).join(" | ");
  const together = indent + [head, parts].filter(Boolean).join(": ");
  const isSmall =
    together.length < LINE &&
    !inner.some((line) => line.startsWith(`${indent}  `)) &&
    tag !== "canvas";
  return isSmall ? [together] : [`${indent}${head || tag}`, ...inner];
}

/** `skip`: elements that are not shown. */
export function shownText(root: Element, skip: readonly string[]): string {
  told.clear();
  return lines(root, 0, skip).join("\n") + "\n";
}

/** For each line of both texts, how many lines the rests of both have in common, in order. */
function commonRests(before: readonly string[], after: readonly string[]): Uint16Array[] {
  const common = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const [here, below] = [common[row] as Uint16Array, common[row + 1] as Uint16Array];
      here[column] =
        before[row] === after[column]
          ? (below[column + 1] ?? 0) + 1
          : Math.max(below[column] ?? 0, here[column + 1] ?? 0);
    }
  }
  return common;
}

/** Of a line that only moved, as much is told again. */
const MOVED = 70;

/** The part of a line that another one has not, between what both begin and end with. */
function changedPart(old: string, now: string): string {
  const least = Math.min(old.length, now.length);
  let [from, back] = [0, 0];
  while (from < least && old[from] === now[from]) from += 1;
  while (back < least - from && old.at(-1 - back) === now.at(-1 - back)) back += 1;
  // Whole words are read more easily.
  while (from > 0 && /[^\s"]/.test(now[from - 1] ?? " ")) from -= 1;
  while (back > 0 && /[^\s"]/.test(now.at(-back) ?? " ")) back -= 1;
  const [went, came] = [old.slice(from, old.length - back), now.slice(from, now.length - back)];
  return `${now.slice(0, Math.min(from, MOVED))}… ${went.slice(0, MOVED)} → ${came}`;
}

/**
 * What changed between two texts: changed parts of lines; how many lines went, and new ones, after
 * the line above them.
 */
export function difference(before: string, after: string): string {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const there = new Set(old);
  const shown: string[] = [];
  let same = 0;
  while (same < old.length && old[same] === now[same]) same += 1;
  const rests = commonRests(old.slice(same), now.slice(same));
  const common = (row: number, column: number): number => rests[row - same]?.[column - same] ?? 0;
  let [row, column] = [same, same];
  while (row < old.length || column < now.length) {
    if (row < old.length && column < now.length && old[row] === now[column]) {
      [row, column] = [row + 1, column + 1];
      continue;
    }
    const [first, added] = [row, [] as string[]];
    while (
      (row < old.length || column < now.length) &&
      (row >= old.length || column >= now.length || old[row] !== now[column])
    ) {
      const goes =
        column >= now.length ||
        (row < old.length && common(row + 1, column) >= common(row, column + 1));
      if (goes) row += 1;
      else added.push(now[column++] as string);
    }
    const went = old.slice(first, row);
    if (went.length === added.length && !added.some((line) => there.has(line))) {
      shown.push(...added.map((line, index) => `= ${changedPart(went[index] ?? "", line)}`));
      continue;
    }
    shown.push(`  ${(old[first - 1] ?? "").slice(0, MOVED)}`);
    if (row > first)
      shown.push(`- ${went.length}, ${checksum(went)}: ${(went[0] ?? "").trim().slice(0, MOVED)}`);
    shown.push(...added.map((line) => `+ ${there.has(line) ? line.slice(0, MOVED) : line}`));
  }
  return shown.join("\n") + "\n";
}

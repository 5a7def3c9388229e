/** Text broken into lines for labels of charts, by the number of letters that fit. Pure. */

/** Pixels of a letter at font size 11: enough for fonts that are wider than Roboto. */
export const LETTER = 7;

/** `text` with an ellipsis where it is longer than `letters`. */
export const shortened = (text: string, letters: number): string =>
  text.length > letters ? `${text.slice(0, Math.max(letters - 1, 0))}…` : text;

/** At most `most` lines of at most `letters`, broken after spaces and after the separators of names. */
export function labelLines(label: string, letters: number, most: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of label.split(/(?<=[\s_/.-])/)) {
    if (line !== "" && (line + word).trimEnd().length > letters) {
      lines.push(line.trimEnd());
      line = word;
    } else line += word;
  }
  lines.push(line.trimEnd());
  const shown = [...lines.slice(0, most - 1), ...(lines.length >= most ? [lines.slice(most - 1).join(" ")] : [])];
  return shown.map((one) => shortened(one, letters));
}

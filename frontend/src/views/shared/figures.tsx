/** Figures as table rows: one unit per column, exact bytes on demand and in `data-bytes`. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { formatBytes, formatCount, formatFigure, formatShare, type Unit } from "../../lib/bytes";
import { WORDS, type WordName } from "../../model/words";
import type { Fill } from "../../theme/palette";
import { useStore } from "./context";
import { tipOf } from "./tips";

/** Whether figures are exact bytes, everywhere. */
export const useExact = (): boolean => useStore().choices.value.exact;

/** How figures of a column are written: in its unit, or exactly. */
export function useFigureText(unit: Unit): (bytes: number) => string {
  const exact = useExact();
  return (bytes) => (exact ? formatCount(bytes) : formatFigure(bytes, unit));
}

/** A square in the fill of a band, drawn with gradients so that it needs no canvas. */
export function Swatch({ fill }: { fill: Fill }) {
  return <span class={`swatch ${fill.pattern}`} style={{ "--fill": fill.colour }} aria-hidden="true" />;
}

export interface FigureProps {
  name: string;
  label: ComponentChildren;
  /** Its meaning. */
  hint?: string;
  /** The value's source and step. */
  source?: string;
  bytes: number | null;
  /** Of the whole, 0 to 1. */
  share?: number | null;
  /** Whether the share is in the tooltip only, because the picture beside the table shows it. */
  pictured?: boolean;
  hidden?: boolean;
  unit: Unit;
  fill?: Fill;
  strong?: boolean;
  /** While the pointer or the keyboard is on it. */
  onFocus?: (focused: boolean) => void;
  focused?: boolean;
  /** By a click or Enter. */
  onChoose?: () => void;
  chosen?: boolean;
}

/** Event handlers and attributes of a row that can be highlighted and chosen. */
export const rowEvents = ({ onFocus, onChoose, chosen }: Pick<FigureProps, "onFocus" | "onChoose" | "chosen">) => ({
  "aria-current": chosen ? ("true" as const) : undefined,
  onMouseEnter: onFocus && (() => onFocus(true)),
  onMouseLeave: onFocus && (() => onFocus(false)),
  onFocus: onFocus && (() => onFocus(true)),
  onBlur: onFocus && (() => onFocus(false)),
  onClick: onChoose,
  onKeyDown:
    onChoose &&
    ((event: KeyboardEvent): void => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onChoose();
    }),
});

export const rowClasses = (classes: Record<string, boolean | undefined>): string =>
  Object.keys(classes)
    .filter((name) => classes[name])
    .join(" ");

export function Figure(props: FigureProps) {
  const { name, label, hint, source, bytes, unit, fill, strong, focused, onChoose, chosen, pictured = false } = props;
  const share = props.share === null || props.share === undefined ? "" : formatShare(props.share);
  const text = useFigureText(unit);
  return (
    <tr
      class={rowClasses({ strong, zero: bytes === 0, focused: focused || chosen, choosable: onChoose !== undefined })}
      hidden={props.hidden}
      data-figure={name}
      data-bytes={bytes ?? ""}
      data-tip={tipOf(bytes, pictured && share !== "" ? `${hint ?? ""}; ${share}` : hint, source)}
      {...rowEvents(props)}
    >
      <th scope="row">
        {fill && <Swatch fill={fill} />}
        <span class="label">{label}</span>
      </th>
      <td class="figure" aria-label={bytes === null ? "unknown" : formatBytes(bytes)}>
        {bytes === null ? "–" : text(bytes)}
      </td>
      <td class="share">{!pictured && share}</td>
    </tr>
  );
}

type WordFigureProps = Omit<FigureProps, "name" | "label" | "hint" | "source"> & { word: WordName; label?: string; when: string };

/** A figure with the same name and meaning in every view; `when` is its step or moment. */
export function WordFigure({ word, when, label, ...props }: WordFigureProps) {
  const { label: usual, meaning, source } = WORDS[word];
  return <Figure {...props} name={word} label={label ?? usual} hint={meaning} source={`${source}, ${when}`} />;
}

const ROWS = "tr[data-tip]:not([hidden])";

/** One stop of the Tab key for the whole table; arrow keys go from row to row. */
function useRows() {
  const table = useRef<HTMLTableElement>(null);
  useLayoutEffect(() => {
    const rows = [...(table.current?.querySelectorAll<HTMLElement>(ROWS) ?? [])];
    const stop = rows.find(({ tabIndex }) => tabIndex === 0) ?? rows[0];
    for (const row of rows) row.tabIndex = row === stop ? 0 : -1;
  });
  const onKeyDown = (event: KeyboardEvent): void => {
    const rows = [...(table.current?.querySelectorAll<HTMLElement>(ROWS) ?? [])];
    const now = rows.indexOf(event.target as HTMLElement);
    const goal = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: rows.length - 1 }[event.key];
    const next = goal === undefined || now < 0 ? undefined : rows[goal];
    if (!next) return;
    event.preventDefault();
    for (const row of rows) row.tabIndex = row === next ? 0 : -1;
    next.focus();
  };
  return { ref: table, onKeyDown };
}

/** A table of figures. */
export function FigureTable({ testid, kind = "", children }: { testid?: string; kind?: string; children: ComponentChildren }) {
  return (
    <table {...useRows()} class={rowClasses({ figures: true, [kind]: kind !== "", exact: useExact() })} data-testid={testid}>
      {children}
    </table>
  );
}

/** The button that turns every figure of the page into exact bytes and back. */
export function UnitButton({ unit }: { unit: Unit }) {
  const store = useStore();
  const exact = useExact();
  return (
    <button type="button" class="unit" aria-pressed={exact} title="Show exact bytes" onClick={() => store.choose({ exact: !exact })}>
      {exact ? "B" : unit}
    </button>
  );
}

/** Figures as table rows: one unit per column, exact bytes on demand, the number itself in the document for tests and readers. */

import type { ComponentChildren } from "preact";

import { formatBytes, formatCount, formatExact, formatFigure, type Unit } from "../lib/bytes";
import { formatShare } from "../lib/format";
import type { Fill } from "../theme/palette";
import { useStore } from "./context";

/** Whether figures are exact bytes, everywhere. */
export const useExact = (): boolean => useStore().choices.value.exact;

/** A square in the fill of a band, drawn with gradients so that it needs no canvas. */
export function Swatch({ fill }: { fill: Fill }) {
  return <span class={`swatch ${fill.pattern}`} style={{ "--fill": fill.colour }} aria-hidden="true" />;
}

export interface FigureProps {
  name: string;
  label: ComponentChildren;
  hint?: string;
  bytes: number | null;
  /** Of the whole, 0 to 1; undefined: no such cell. */
  share?: number | null;
  unit: Unit;
  fill?: Fill;
  strong?: boolean;
  onFocus?: (focused: boolean) => void;
  focused?: boolean;
}

export function Figure({ name, label, hint, bytes, share, unit, fill, strong, onFocus, focused }: FigureProps) {
  const exact = useExact();
  const text = bytes === null ? "–" : exact ? formatCount(bytes) : formatFigure(bytes, unit);
  const classes = [strong ? "strong" : "", bytes === 0 ? "zero" : "", focused ? "focused" : ""].filter(Boolean).join(" ");
  return (
    <tr
      class={classes}
      data-figure={name}
      data-bytes={bytes ?? ""}
      onMouseEnter={onFocus && (() => onFocus(true))}
      onMouseLeave={onFocus && (() => onFocus(false))}
      title={[hint, bytes === null ? "not known" : formatExact(bytes)].filter(Boolean).join("\n")}
    >
      <th scope="row">
        {fill && <Swatch fill={fill} />}
        <span class="label">{label}</span>
      </th>
      <td class="figure" aria-label={bytes === null ? "not known" : formatBytes(bytes)}>
        {text}
      </td>
      <td class="share">{share === null || share === undefined ? "" : formatShare(share)}</td>
    </tr>
  );
}

/** A table of figures. */
export function FigureTable({ testid, kind = "", children }: { testid?: string; kind?: string; children: ComponentChildren }) {
  const classes = ["figures", kind, useExact() ? "exact" : ""].filter(Boolean).join(" ");
  return (
    <table class={classes} data-testid={testid}>
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

/**
 * Parts of long tables that keep only visible rows in the document: sorted columns, and arrow keys
 * from row to row.
 */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { formatCount } from "../../lib/bytes";
import { clamp } from "../../lib/search";
import { MOST_PRINTED, printing } from "./print";

const ROW_HEIGHT = 28;

interface SortedColumnProps {
  name: string;
  label: string;
  hint: string;
  isNumber: boolean;
  sorted: boolean;
  ascending: boolean;
  choose: () => void;
}

export const SortedColumn = ({
  name,
  label,
  hint,
  isNumber,
  sorted,
  ascending,
  choose,
}: SortedColumnProps) => (
  <th
    scope="col"
    class={`column-${name}${isNumber ? " number" : ""}`}
    aria-sort={sorted ? (ascending ? "ascending" : "descending") : "none"}
  >
    <button type="button" title={hint} onClick={choose}>
      {label}
      {sorted && (
        <span class="arrow" aria-hidden="true">
          {ascending ? "▲" : "▼"}
        </span>
      )}
    </button>
  </th>
);

function Filler({ rows }: { rows: number }) {
  if (rows <= 0) return null;
  if (!printing.value)
    return <tr aria-hidden="true" style={{ height: `${rows * ROW_HEIGHT}px` }} />;
  return (
    <tr>
      <td colSpan={99}>{formatCount(rows)} more</td>
    </tr>
  );
}

interface LongTableProps<Line> {
  label: string;
  testid: string;
  class: string;
  lines: readonly Line[];
  /** Of `useScrollWindow`. */
  scroll: ReturnType<typeof useScrollWindow>;
  onKeyDown?: (event: KeyboardEvent) => void;
  head: ComponentChildren;
  foot?: ComponentChildren;
  row: (line: Line, index: number) => ComponentChildren;
}

export function LongTable<Line>(props: LongTableProps<Line>) {
  const { label, testid, class: kind, lines, scroll, onKeyDown, head, foot, row } = props;
  const { host, first, last, onScroll } = scroll;
  return (
    <div
      class="layer-scroll"
      ref={host}
      onScroll={onScroll}
      onKeyDown={onKeyDown}
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <table class={kind} data-testid={testid} aria-rowcount={lines.length + 1}>
        {head}
        <tbody>
          <Filler rows={first} />
          {lines.slice(first, last).map((line, index) => row(line, index + first))}
          <Filler rows={lines.length - last} />
        </tbody>
        {foot}
      </table>
    </div>
  );
}

/**
 * Handler of the keys of a table: arrow keys select the next or the previous stop, Home and End the
 * first and the last.
 *
 * @param stops What can be selected, in the order of the rows, and the one that is selected.
 */
export function arrowKeys<Stop>(
  host: { current: HTMLElement | null },
  stops: () => { all: readonly Stop[]; selected: Stop | null },
  select: (stop: Stop) => void,
): (event: KeyboardEvent) => void {
  return (event) => {
    const { all, selected } = stops();
    const now = selected === null ? -1 : all.indexOf(selected);
    const goal = {
      ArrowDown: now + 1,
      ArrowUp: Math.max(now - 1, 0),
      Home: 0,
      End: all.length - 1,
    }[event.key];
    const next = goal === undefined ? undefined : all[goal];
    if (next === undefined) return;
    event.preventDefault();
    // The row with the focus may scroll out of the document.
    host.current?.focus({ preventScroll: true });
    select(next);
  };
}

const MARGIN_ROWS = 8;

/**
 * Index of the first row in sight and of the one after the last, with a margin; `top` and `height`
 * are those of what is in sight.
 */
export function rowsInSight(
  count: number,
  rowHeight: number,
  top: number,
  height: number,
): { first: number; last: number } {
  return {
    first: clamp(Math.floor(top / rowHeight) - MARGIN_ROWS, 0, Math.max(count - 1, 0)),
    last: Math.min(Math.ceil((top + height) / rowHeight) + MARGIN_ROWS, count),
  };
}

export function useScrollWindow(count: number) {
  const host = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(0);
  const measure = () => setHeight(host.current?.clientHeight ?? 0);
  useLayoutEffect(() => {
    if (!host.current) return undefined;
    // Before the first frame is painted; the observer also reports changes in the number of rows.
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  const reveal = (index: number) => {
    const element = host.current;
    if (!element || index < 0) return;
    const place = index * ROW_HEIGHT;
    if (
      place < element.scrollTop ||
      place > element.scrollTop + element.clientHeight - 3 * ROW_HEIGHT
    )
      element.scrollTop = place - element.clientHeight / 2;
  };
  const rows = printing.value
    ? { first: 0, last: Math.min(count, MOST_PRINTED) }
    : rowsInSight(count, ROW_HEIGHT, top, height);
  return { host, ...rows, reveal, onScroll: () => setTop(host.current?.scrollTop ?? 0) };
}

/** Of a long list that scrolls, the rows in sight: only these are in the document. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

const MARGIN_ROWS = 8;

/** Index of the first row in sight and of the one after the last, with a margin; `top` and `height` are those of what is in sight. */
export function rowsInSight(count: number, rowHeight: number, top: number, height: number): { first: number; last: number } {
  return {
    first: Math.min(Math.max(Math.floor(top / rowHeight) - MARGIN_ROWS, 0), Math.max(count - 1, 0)),
    last: Math.min(Math.ceil((top + height) / rowHeight) + MARGIN_ROWS, count),
  };
}

/** The rows in sight, and a way to bring one into sight. */
export function useScrollWindow(count: number, rowHeight: number) {
  const host = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(0);
  const measure = (): void => setHeight(host.current?.clientHeight ?? 0);
  useLayoutEffect(() => {
    if (!host.current) return undefined;
    // Before the first frame is painted; the observer also reports changes in the number of rows.
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  const reveal = (index: number): void => {
    const element = host.current;
    if (!element || index < 0) return;
    const place = index * rowHeight;
    if (place < element.scrollTop || place > element.scrollTop + element.clientHeight - 3 * rowHeight)
      element.scrollTop = place - element.clientHeight / 2;
  };
  return { host, ...rowsInSight(count, rowHeight, top, height), reveal, onScroll: () => setTop(host.current?.scrollTop ?? 0) };
}

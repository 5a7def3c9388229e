/** Of a long list that scrolls, the rows in sight: only these are in the document. */

import { useRef, useState } from "preact/hooks";

const MARGIN_ROWS = 8;

/** First and last row in sight, with a margin, and a way to bring one into sight. */
export function useScrollWindow(count: number, rowHeight: number) {
  const host = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = host.current?.clientHeight ?? 800;
  const first = Math.min(Math.max(Math.floor(top / rowHeight) - MARGIN_ROWS, 0), Math.max(count - 1, 0));
  const last = Math.min(Math.ceil((top + height) / rowHeight) + MARGIN_ROWS, count);
  const reveal = (index: number): void => {
    const element = host.current;
    if (!element || index < 0) return;
    const place = index * rowHeight;
    if (place < element.scrollTop || place > element.scrollTop + element.clientHeight - 3 * rowHeight)
      element.scrollTop = place - element.clientHeight / 2;
  };
  return { host, first, last, reveal, onScroll: () => setTop(host.current?.scrollTop ?? 0) };
}

/** The failed request, to be dragged over the memory map; the arrow keys move it through the free chunks. */

import { useMemo, useRef } from "preact/hooks";

import { chunkAt } from "../../../charts/map-layout";
import { formatBytes, unbroken } from "../../../lib/bytes";
import { wouldFit, freeBySize, requestPlace, type MemoryMap } from "../../../model/memory-map";

interface RequestChipProps {
  map: MemoryMap;
  requested: number;
  starts: readonly number[];
  /** The chunk that it lies over, null for none. */
  chunk: number | null;
  move: (chunk: number | null) => void;
}

/** The chunk under a point of the page; null beside the strips. */
function chunkUnder(map: MemoryMap, starts: readonly number[], x: number, y: number): number | null {
  const strip = document.elementFromPoint(x, y)?.closest<HTMLElement>("[data-region]");
  if (!strip) return null;
  const { region, begin, end: upto } = strip.dataset;
  const [first, end] = [starts[Number(region)] ?? 0, starts[Number(region) + 1] ?? 0];
  const box = strip.getBoundingClientRect();
  const address = Number(begin) + ((x - box.left) / box.width) * (Number(upto) - Number(begin));
  return end > first ? Math.min(Math.max(chunkAt(map, first, end, address), first), end - 1) : null;
}

export function RequestChip({ map, requested, starts, chunk, move }: RequestChipProps) {
  const free = useMemo(() => freeBySize(map), [map]);
  const isHeld = useRef(false);
  const place = chunk === null ? null : requestPlace(map, chunk, requested);
  const said = place?.sentence ?? wouldFit(map, requested).reason;
  const at = chunk === null ? -1 : free.indexOf(chunk);
  const keys: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowDown: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at - 1,
    Home: 0,
    End: free.length - 1,
  };
  return (
    <div class="request-row">
      <span
        class="request-chip"
        role="slider"
        tabIndex={0}
        aria-label={`Request of ${formatBytes(requested)} over the free chunks, the largest first`}
        aria-valuemin={0}
        aria-valuemax={free.length}
        aria-valuenow={at + 1}
        aria-valuetext={said}
        onKeyDown={(event) => {
          const next = event.key === "Escape" ? -1 : keys[event.key];
          if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
          event.preventDefault();
          event.stopPropagation();
          move(free[Math.min(next, free.length - 1)] ?? null);
        }}
        onPointerDown={(event) => {
          isHeld.current = true;
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={({ clientX, clientY }) => isHeld.current && move(chunkUnder(map, starts, clientX, clientY))}
        onPointerUp={() => (isHeld.current = false)}
        onPointerCancel={() => (isHeld.current = false)}
      >
        request {formatBytes(requested)}
      </span>
      <p data-testid="request-place" data-holds={String(place?.holds ?? "")} role="status">
        {chunk === null ? <span class="small">Drag over the map.</span> : unbroken(said)}
      </p>
    </div>
  );
}

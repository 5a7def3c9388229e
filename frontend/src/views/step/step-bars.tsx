/** What a step's timeline shows: its stack and x-axis, and how tensors are colored and placed. */

import { formatBytes, plural } from "../../lib/bytes";
import type { Timeline } from "../../model/timeline";
import { DRAGS, PLACEMENTS, STACKS, TENSOR_COLOURINGS, TIMELINE_AXES } from "../../state/address";
import { useStore } from "../shared/context";
import { Segments } from "../shared/segments";
import { hasAddresses, type TensorBlocks } from "./tensor-blocks";

/** Selects the stack and the x-axis. */
export function Chooser() {
  const store = useStore();
  const choices = store.choices.value;
  return (
    <div class="timeline-bar">
      <Segments label="stack by" options={STACKS} chosen={choices.stack} choose={(stack) => store.choose({ stack })} />
      <Segments
        label="x-axis"
        options={TIMELINE_AXES}
        chosen={choices.timelineAxis}
        choose={(timelineAxis) => store.choose({ timelineAxis })}
      />
      <Segments label="drag" options={DRAGS} chosen={choices.dragging} choose={(dragging) => store.choose({ dragging })} />
      <button type="button" class="quiet" disabled={choices.span === null} onClick={() => store.choose({ span: null })}>
        Show whole step
      </button>
    </div>
  );
}

/** How tensors are colored and placed, and what is not drawn. */
export function TensorBar({ timeline, tensors }: { timeline: Timeline; tensors: TensorBlocks }) {
  const store = useStore();
  const { tensorColouring, placement } = store.choices.value;
  const known = hasAddresses(timeline);
  const { addresses } = tensors;
  return (
    <div class="timeline-bar" data-testid="tensor-bar">
      <Segments
        label="colour by"
        options={TENSOR_COLOURINGS}
        chosen={tensorColouring}
        choose={(chosen) => store.choose({ tensorColouring: chosen })}
      />
      {known && (
        <Segments label="tensors" options={PLACEMENTS} chosen={placement} choose={(chosen) => store.choose({ placement: chosen })} />
      )}
      {!known && placement === "by address" && <span class="small">Addresses unknown: tensors are stacked.</span>}
      {addresses !== null && addresses.unknown > 0 && (
        <span class="small" data-testid="unplaced">
          {`Not drawn, address unknown: ${plural(addresses.unknown, "tensor")}, ${formatBytes(addresses.unknown_bytes)} at the peak`}
        </span>
      )}
    </div>
  );
}

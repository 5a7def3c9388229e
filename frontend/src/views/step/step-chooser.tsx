/** Selects the stack and the x-axis of a step's timeline. */

import { STACKS, TIMELINE_AXES } from "../../state/address";
import { useStore } from "../shared/context";
import { Segments } from "../shared/segments";

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
      <button type="button" class="quiet" disabled={choices.span === null} onClick={() => store.choose({ span: null })}>
        Show whole step
      </button>
    </div>
  );
}

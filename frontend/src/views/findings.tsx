/** Sentences under the picture; each leads to the step that shows it. */

import { useMemo } from "preact/hooks";

import { unbroken } from "../lib/format";
import { findings } from "../model/findings";
import type { Overview } from "../model/overview";
import { useStore } from "./context";

const SHOWN = 5;

export function Findings({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const all = useMemo(() => findings(whole), [whole]);
  if (all.length === 0) return null;
  return (
    <ul class="findings" aria-label="Findings" data-testid="findings">
      {all.slice(0, SHOWN).map(({ sentence, step, kind }) => (
        <li key={sentence} class={kind}>
          <button
            type="button"
            title={`Show step ${step}`}
            onClick={() => store.choose({ step, ...(kind === "peak" ? {} : { view: "frozen" }) })}
          >
            {unbroken(sentence)}
          </button>
        </li>
      ))}
      {all.length > SHOWN && <li class="small">and {all.length - SHOWN} more changes, marked above the chart</li>}
    </ul>
  );
}

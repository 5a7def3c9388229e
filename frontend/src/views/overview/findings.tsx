/** Findings below the chart; each links to the view and the step that show it. */

import { useMemo } from "preact/hooks";

import { unbroken } from "../../lib/format";
import { findings, runFindings, type Finding } from "../../model/findings";
import type { Overview } from "../../model/overview";
import { useStore } from "../shared/context";

const SHOWN = 5;

const goal = ({ step, view }: Finding): string =>
  step === null ? `Show the ${view === "oom" ? "post-mortem" : "view"}` : `Show step ${step}`;

export function Findings({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const run = store.primary.value;
  const own = useMemo(() => findings(whole), [whole]);
  const told = useMemo(() => (run ? runFindings(run, overview.device) : []), [run, overview.device]);
  const all = [...told, ...own];
  if (all.length === 0) return null;
  const show = ({ step, view, zoom }: Finding): void => store.choose({ view, step, ...(zoom === null ? {} : { zoom }) });
  return (
    <ul class="findings" aria-label="Findings" data-testid="findings">
      {all.slice(0, SHOWN + told.length).map((finding) => (
        <li key={finding.sentence} class={finding.kind}>
          <button type="button" title={goal(finding)} onClick={() => show(finding)}>
            {unbroken(finding.sentence)}
          </button>
        </li>
      ))}
      {own.length > SHOWN && <li class="small">and {own.length - SHOWN} more, marked above the chart</li>}
    </ul>
  );
}

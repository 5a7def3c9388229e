/** Findings below the chart; each links to the view and the step that show it. */

import { useMemo } from "preact/hooks";

import { unbroken } from "../../lib/format";
import { findings, growthFindings, type Finding } from "../../model/findings";
import type { Overview } from "../../model/overview";
import { trains } from "../../model/run";
import { useStore } from "../shared/context";

const goal = ({ step }: Finding): string => (step === null ? "Show the view" : `Show step ${step}`);

export function Findings({ overview }: { overview: Overview }) {
  const store = useStore();
  const whole = store.whole.value.value ?? overview;
  const run = store.primary.value;
  const [failed, training] = [run !== null && run.ooms > 0, run === null || trains(run)];
  const atPeak = useMemo(() => findings(whole, failed, training), [whole, failed, training]);
  const growing = useMemo(() => (run ? growthFindings(run, overview.device) : []), [run, overview.device]);
  const all = [...growing, ...atPeak];
  if (all.length === 0) return null;
  const show = ({ step, view, zoom }: Finding): void => store.choose({ view, step, ...(zoom === null ? {} : { zoom }) });
  return (
    <ul class="findings" aria-label="Findings" data-testid="findings">
      {all.map((finding) => (
        <li key={finding.sentence} class={finding.kind}>
          <button type="button" title={goal(finding)} onClick={() => show(finding)}>
            {unbroken(finding.sentence)}
          </button>
        </li>
      ))}
    </ul>
  );
}

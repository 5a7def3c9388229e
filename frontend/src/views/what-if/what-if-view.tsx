/**
 * What a run would need under other conditions, and the cheapest change that makes it fit, beside
 * what was measured.
 */

import { useMemo } from "preact/hooks";

import { formatBytes, isMinor, unbroken, unitOf } from "../../lib/bytes";
import { categoryMeaning, groupKey, groupLabel } from "../../model/categories";
import type { GroupSums } from "../../model/compare";
import { trains } from "../../model/run";
import {
  CONDITIONS,
  METHOD_WORDS,
  askedText,
  assumptionsOf,
  categoriesOf,
  conditionHints,
  largestText,
  ledgerTable,
  optionsTable,
  peaksOf,
  planSentence,
  recordedText,
  replayText,
  verdictOf,
  type NamedPeak,
} from "../../model/what-if";
import type { Loaded } from "../../state/resource";
import { fillOf } from "../../theme/palette";
import { useStore, useFocus, useCategoryRow } from "../shared/context";
import { useExport } from "../shared/export";
import {
  Fact,
  FigureTable,
  FoldedRows,
  Panel,
  SizeCell,
  VersusRow,
  Bytes,
} from "../shared/figures";
import { Fault, Known, Nothing, NoticeList, Skeleton, useLast } from "../shared/states";
import { tipOf } from "../shared/tips";
import { BatchLimits } from "./batch-limits";
import { ConditionsForm, appliedOf, type ConditionFault } from "./conditions";
import { PeakBars, PeakBarsDrawing, PlanDotsDrawing } from "./peak-charts";
import { PeakCurve } from "./peak-curve";
import { PlanHead, PlanNotes, PlanParts } from "./plan";
import { Verdict } from "./verdict";
import type { Plan, RunInfo, WhatIf } from "../../schema";

function Facts({ answer }: { answer: WhatIf }) {
  const { peak_bytes: peak, largest_batch_size: largest, capacity_bytes: capacity } = answer;
  if (peak === null) return null;
  return (
    <dl class="prediction">
      <Fact
        name="largest_batch_size"
        label="largest batch size"
        value={largestText(answer)}
        tip={`The largest batch size that fits${capacity === null ? "" : ` into ${formatBytes(capacity)}`}`}
        figure={largest}
      />
    </dl>
  );
}

const Assumptions = ({ answer }: { answer: WhatIf }) => (
  <NoticeList sentences={assumptionsOf(answer)} testid="assumptions" />
);

function Method({ answer, plan }: { answer: WhatIf; plan: Plan | null }) {
  const { method } = answer;
  const demand = plan?.demand_bytes ?? null;
  return (
    <Known>
      {answer.peak_bytes !== null && <Assumptions answer={answer} />}
      {plan?.fits === true && <PlanNotes plan={plan} />}
      <dl class="prediction">
        <Fact
          name="method"
          label="method"
          value={method.replace("_", " ")}
          note={METHOD_WORDS[method]}
        />
        <Fact name="reproduced" label="replay" value={replayText(answer)} />
        <Fact name="recorded" label="recorded" value={recordedText(answer)} />
        {demand !== null && (
          <Fact
            name="demand_bytes"
            label="live at once"
            value={formatBytes(demand)}
            note="no allocator needs less"
          />
        )}
      </dl>
    </Known>
  );
}

interface PanelProps {
  peaks: readonly NamedPeak[];
  categories: readonly GroupSums[];
}

function PanelRows({ peaks, categories, whole }: PanelProps & { whole: number }) {
  const ofCategory = useCategoryRow();
  const isMeasured = peaks[0]?.name === "measured";
  const rows = [...categories].reverse().map(({ group, bytes }) => {
    const events = ofCategory(groupKey(group), group.category);
    return { group, bytes, events, quiet: isMinor(Math.max(...bytes), whole) };
  });
  const small = rows.filter(({ quiet, events }) => quiet && !events.chosen);
  return (
    <FoldedRows
      columns={isMeasured ? peaks.length + 1 : peaks.length + 2}
      sums={
        <>
          {!isMeasured && <td class="number">–</td>}
          {peaks.map(({ name }, index) => (
            <td key={name} class="number">
              <Bytes of={small.reduce((sum, { bytes }) => sum + (bytes[index] ?? 0), 0)} />
            </td>
          ))}
        </>
      }
      rows={rows.map(({ group, bytes, events, quiet }) => {
        const key = groupKey(group);
        const [from = null, to, planned] = isMeasured ? bytes : [null, ...bytes];
        const tip = [
          ...peaks.map(({ label }, index) => tipOf(bytes[index] ?? 0, label)),
          categoryMeaning(group.category),
        ].join("\n");
        const row = (hidden: boolean) => (
          <VersusRow {...{ key, hidden, group, from, tip, events }} to={to ?? 0}>
            {typeof planned === "number" && <SizeCell bytes={planned} />}
          </VersusRow>
        );
        return { key, quiet, chosen: events.chosen, row };
      })}
    />
  );
}

function Categories({
  peaks,
  categories,
  measuredStep,
}: PanelProps & { measuredStep: number | null }) {
  const whole = Math.max(...peaks.map(({ peak_bytes: bytes }) => bytes ?? 0));
  const isMeasured = measuredStep !== null;
  const totals = peaks.map(({ name, peak_bytes }, index) =>
    name === "predicted"
      ? categories.reduce((sum, { bytes }) => sum + (bytes[index] ?? 0), 0)
      : peak_bytes,
  );
  const shown = isMeasured ? totals : [null, ...totals];
  return (
    <Panel label="Categories, measured and predicted" title="By category" unit={unitOf(whole)}>
      <FigureTable kind={isMeasured ? "versus" : "versus unmeasured"} testid="predicted">
        <thead>
          <tr>
            <td />
            <th
              scope="col"
              title={isMeasured ? `peak of step ${measuredStep}` : "no such step was traced"}
            >
              measured
              <br />
              <span class="small">step {measuredStep}</span>
            </th>
            {peaks.slice(isMeasured ? 1 : 0).map(({ name, label }) => (
              <th
                key={name}
                scope="col"
                title={name === "predicted" ? "predicted peak" : "predicted peak with the change"}
              >
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <PanelRows {...{ peaks, categories, whole }} />
        </tbody>
        <tbody class="totals">
          <tr
            class="strong"
            data-figure="total"
            data-from={shown[0] ?? ""}
            data-to={shown[1] ?? ""}
          >
            <th scope="row">peak</th>
            {shown.map((bytes, index) => (
              <SizeCell key={index} bytes={bytes} />
            ))}
          </tr>
        </tbody>
      </FigureTable>
    </Panel>
  );
}

const SAVED = { width: 560, height: 420 };

/** `isSearching`: `plan` is that for the conditions before. */
interface HeadProps {
  answer: WhatIf;
  plan: Plan | null;
  planFault: string | null;
  isSearching: boolean;
}

function AnswerHead({ answer, plan, planFault, isSearching }: HeadProps) {
  return (
    <div class="answer-head">
      <div class="verdicts">
        <div>
          <Verdict name="verdict" verdict={verdictOf(answer)} sentence={answer.sentence} />
          <Facts answer={answer} />
          {answer.peak_bytes === null && <Assumptions answer={answer} />}
        </div>
        <div class="plan-head">
          {planFault !== null && <Fault sentence={planFault} />}
          {isSearching && (
            <h2 class="verdict" data-testid="plan-search" aria-live="polite">
              Searching for a plan…
            </h2>
          )}
          {plan && !isSearching && planSentence(plan) !== answer.sentence && (
            <PlanHead plan={plan} />
          )}
        </div>
      </div>
      <Method answer={answer} plan={isSearching ? null : plan} />
    </div>
  );
}

function Answer({ run, ...head }: HeadProps & { run: RunInfo }) {
  const focus = useFocus();
  const { answer, isSearching } = head;
  const plan = isSearching ? null : head.plan;
  const peaks = useMemo(() => peaksOf(answer, plan), [answer, plan]);
  const categories = useMemo(() => categoriesOf(peaks), [peaks]);
  const drawn = { peaks, categories, capacity: answer.capacity_bytes, focus };
  const isKnown = answer.peak_bytes !== null;
  useExport({
    table: () => ledgerTable(peaks),
    ...(plan && plan.options.length > 0 && { changes: () => optionsTable(plan) }),
    ...(isKnown && {
      legend: () =>
        categories.map(({ group }) => ({ label: groupLabel(group), fill: fillOf(group) })),
      drawing: () => (
        <svg xmlns="http://www.w3.org/2000/svg" width={2 * SAVED.width} height={SAVED.height}>
          <PeakBarsDrawing {...drawn} {...SAVED} />
          <g transform={`translate(${SAVED.width})`}>
            {plan && plan.options.length > 1 && <PlanDotsDrawing plan={plan} {...SAVED} />}
          </g>
        </svg>
      ),
    }),
  });
  return (
    <div class="answer">
      <AnswerHead {...head} />
      {isKnown && (
        <div class="body">
          <div class="picture what-if-pictures">
            <PeakBars {...drawn} />
            <PeakCurve answer={answer} />
          </div>
          <Categories {...{ peaks, categories }} measuredStep={answer.measured?.step ?? null} />
          {head.plan && head.plan.fits !== null && (
            <div class="plan-below" aria-busy={isSearching} inert={isSearching}>
              <PlanParts plan={head.plan} />
            </div>
          )}
          <BatchLimits run={run} device={answer.device} />
        </div>
      )}
    </div>
  );
}

const ABOUT_REQUESTS =
  "This view simulates the allocator on recorded training steps. `tb_memplugin.MemoryCallback` and `tb_memplugin.MemoryRecorder` record the requests of the steps that they trace.";

const NoRequests = ({ run, device, answer }: { run: RunInfo; device: string; answer: WhatIf }) => (
  <Nothing
    title={
      trains(run)
        ? `No recorded requests of ${run.run} on ${device}`
        : `${run.run} has no training steps`
    }
    sentences={[answer.sentence, ABOUT_REQUESTS]}
  />
);

const faultOf = ({ error, parameter }: Loaded<unknown>): ConditionFault[] =>
  error === null ? [] : [{ parameter: parameter ?? null, sentence: error }];

export function WhatIfView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const [whatIf, planned] = [store.whatIf.value, store.plan.value];
  const answer = useLast(whatIf.value);
  const plan = useLast(planned.value);
  if (answer?.recorded.steps.length === 0)
    return <NoRequests run={run} device={device} answer={answer} />;
  const applied = appliedOf(store);
  const isOfField = ({ parameter }: ConditionFault): boolean =>
    CONDITIONS.some((name) => name === parameter);
  const fault = faultOf(whatIf)[0];
  // A capacity that is wrong is also the budget.
  const planFaults = faultOf(planned).filter(
    ({ parameter }) => parameter !== "budget" || applied.budget !== "",
  );
  return (
    <div
      class="what-if"
      data-testid="what-if"
      aria-busy={whatIf.value === null && whatIf.error === null}
    >
      <ConditionsForm
        hints={conditionHints(answer, applied)}
        faults={[...faultOf(whatIf), ...planFaults]}
      />
      {fault && !isOfField(fault) && <Fault sentence={fault.sentence} />}
      {fault && answer && (
        <p class="last-answer small">Last answer: {unbroken(askedText(answer))}</p>
      )}
      {answer && (
        <Answer
          run={run}
          answer={answer}
          plan={plan}
          planFault={planFaults.find((one) => !isOfField(one))?.sentence ?? null}
          isSearching={planned.value === null && planned.error === null}
        />
      )}
      {!answer && !fault && <Skeleton />}
    </div>
  );
}

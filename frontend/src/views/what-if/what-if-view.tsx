/** What a run would need under other conditions: controls, the answer, and the prediction beside the measurement. */

import type { ComponentChildren } from "preact";
import { useRef, useMemo } from "preact/hooks";

import { unbroken, formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import { trains } from "../../model/run";
import {
  CONDITIONS,
  askedText,
  METHOD_WORDS,
  assumptionsOf,
  ledgerDeltas,
  largestText,
  ledgerTable,
  rangeText,
  recordedText,
  replayText,
  totalOf,
  verdictOf,
  AS_RECORDED,
  OPTIMIZERS,
  PRECISIONS,
  isAsRecorded,
  conditionHints,
  type ConditionName,
  type Conditions,
} from "../../model/what-if";
import type { Store } from "../../state/store";
import { fillOf } from "../../theme/palette";
import { useStore, schemeOf, useFocus, useDraft } from "../shared/context";
import { useExport } from "../shared/export";
import { Fact } from "../shared/figures";
import { Fault, Nothing, Skeleton, Known, NoticeList } from "../shared/states";
import { tipOf } from "../shared/tips";
import { MeasuredPanel } from "../shared/versus";
import { PeakBars, PeakBarsDrawing } from "./peak-bars";
import { PeakCurve } from "./peak-curve";
import type { RunInfo, WhatIf } from "../../schema";

const SAVED = { width: 560, height: 420 };

function Facts({ answer }: { answer: WhatIf }) {
  const { peak_bytes: peak, low_bytes: low, high_bytes: high, largest_batch_size: largest, capacity_bytes: capacity } = answer;
  if (peak === null) return null;
  return (
    <dl class="prediction">
      <Fact
        name="peak_bytes"
        label="predicted peak"
        value={rangeText(low, high)}
        figure={peak}
        tip={tipOf(peak, `range: ${rangeText(low, high)}`, "of the simulated steps")}
      />
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

function Method({ answer }: { answer: WhatIf }) {
  const { method } = answer;
  return (
    <dl class="prediction">
      <Fact name="method" label="method" value={method.replace("_", " ")} note={METHOD_WORDS[method]} />
      <Fact name="reproduced" label="replay" value={replayText(answer)} />
      <Fact name="recorded" label="recorded" value={recordedText(answer)} />
    </dl>
  );
}

const Assumptions = ({ answer }: { answer: WhatIf }) => <NoticeList sentences={assumptionsOf(answer)} testid="assumptions" />;

function Answer({ answer }: { answer: WhatIf }) {
  const scheme = schemeOf(useStore());
  const { focus, hover } = useFocus();
  const deltas = useMemo(() => ledgerDeltas(answer), [answer]);
  const drawn = { answer, deltas, focus, scheme };
  const isKnown = answer.peak_bytes !== null;
  useExport({
    table: () => ledgerTable(answer),
    ...(isKnown && {
      legend: () =>
        deltas.map(({ group }) => ({
          label: groupLabel(group),
          fill: fillOf(group.category, group.trainable, scheme),
          key: groupKey(group),
        })),
      drawing: () => <PeakBarsDrawing {...drawn} {...SAVED} />,
    }),
  });
  return (
    <div class="answer">
      <div class="answer-head">
        <h2 class="verdict" data-testid="verdict" data-verdict={verdictOf(answer)} aria-live="polite">
          {unbroken(answer.sentence)}
        </h2>
        <Facts answer={answer} />
        {!isKnown && <Assumptions answer={answer} />}
        <Known>
          {isKnown && <Assumptions answer={answer} />}
          <Method answer={answer} />
        </Known>
      </div>
      {isKnown && (
        <div class="body">
          <div class="picture what-if-pictures">
            <PeakBars {...drawn} />
            <PeakCurve answer={answer} />
          </div>
          <MeasuredPanel
            label="Categories, measured and predicted"
            testid="predicted"
            name="predicted"
            measured={answer.measured}
            predicted={totalOf(answer.ledger)}
            deltas={deltas}
            hover={hover}
          />
        </div>
      )}
    </div>
  );
}

const set = (store: Store, name: ConditionName, value: string): void => {
  const { conditions } = store.choices.peek();
  if (conditions[name] !== value) store.choose({ conditions: { ...conditions, [name]: value } });
};

/** The conditions of the shown answer; a report has the recorded ones only. */
const appliedOf = (store: Store): Conditions => (store.recordedOnly ? AS_RECORDED : store.choices.value.conditions);

/** What is wrong with the conditions, and with which one of them if it is one alone. */
export interface ConditionFault {
  parameter: string | null;
  sentence: string;
}

interface PlaceProps {
  name: ConditionName;
  label: string;
  fault: ConditionFault | null;
  children: ComponentChildren;
}

const idOf = (name: ConditionName): string => `condition-${name}`;
const isAbout = (fault: ConditionFault | null, name: ConditionName): fault is ConditionFault => fault?.parameter === name;

function Place({ name, label, fault, children }: PlaceProps) {
  return (
    <div class={`condition ${name}`}>
      <span class="condition-head">
        <label for={idOf(name)}>{label}</label>
      </span>
      {children}
      {isAbout(fault, name) && (
        <p class="condition-fault" role="alert" id={`${idOf(name)}-fault`}>
          {fault.sentence}
        </p>
      )}
    </div>
  );
}

const faultAttributes = (fault: ConditionFault | null, name: ConditionName) =>
  isAbout(fault, name) && { "aria-invalid": true, "aria-describedby": `${idOf(name)}-fault` };

interface FieldProps {
  name: ConditionName;
  label: string;
  placeholder: string;
  type?: "text" | "number";
  fault: ConditionFault | null;
}

function Field({ name, label, placeholder, type = "text", fault }: FieldProps) {
  const store = useStore();
  const applied = appliedOf(store)[name];
  const field = useDraft(applied, (value) => set(store, name, value));
  const number = type === "number" && { min: 1, step: 1 };
  return (
    <Place name={name} label={label} fault={fault}>
      <input
        id={idOf(name)}
        type={type}
        {...number}
        {...faultAttributes(fault, name)}
        name={name}
        placeholder={placeholder}
        title="Empty: as recorded"
        disabled={store.recordedOnly}
        {...field}
      />
    </Place>
  );
}

interface ChoiceProps {
  name: ConditionName;
  label: string;
  options: readonly string[];
  fault: ConditionFault | null;
}

function Choice({ name, label, options, fault }: ChoiceProps) {
  const store = useStore();
  const value = appliedOf(store)[name];
  // An address may hold another value; the server says what is wrong with it.
  const shown = value === "" || options.includes(value) ? options : [value, ...options];
  return (
    <Place name={name} label={label} fault={fault}>
      <select
        id={idOf(name)}
        {...faultAttributes(fault, name)}
        name={name}
        value={value}
        disabled={store.recordedOnly}
        onChange={(event) => set(store, name, event.currentTarget.value)}
      >
        <option value="">as recorded</option>
        {shown.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </Place>
  );
}

export function ConditionsForm({ answer, fault }: { answer: WhatIf | null; fault: ConditionFault | null }) {
  const store = useStore();
  const { conditions } = store.choices.value;
  const { batchSize, capacity } = conditionHints(answer, appliedOf(store));
  return (
    <form class="conditions" aria-label="Conditions" onSubmit={(event) => event.preventDefault()}>
      <Field name="batch_size" label="batch size" type="number" placeholder={batchSize} fault={fault} />
      <Field name="capacity" label="capacity" placeholder={capacity} fault={fault} />
      <Field name="freeze" label="freeze" placeholder="*/block1_*" fault={fault} />
      <Field name="unfreeze" label="unfreeze" placeholder="*/block1_*" fault={fault} />
      <Choice name="optimizer" label="optimizer" options={OPTIMIZERS} fault={fault} />
      <Choice name="precision" label="precision" options={PRECISIONS} fault={fault} />
      {store.recordedOnly ? (
        <p class="small">A report contains the recorded conditions only. Other conditions need TensorBoard.</p>
      ) : (
        <button
          type="button"
          class="quiet"
          style={{ visibility: isAsRecorded(conditions) ? "hidden" : "visible" }}
          onClick={() => store.choose({ conditions: AS_RECORDED })}
        >
          Reset
        </button>
      )}
    </form>
  );
}

function NoRequests({ run, device, answer }: { run: RunInfo; device: string; answer: WhatIf }) {
  return (
    <Nothing title={trains(run) ? `No recorded requests of ${run.run} on ${device}` : `${run.run} has no training steps`}>
      <p>{answer.sentence}</p>
      <p>
        This view simulates the allocator on recorded training steps. <code>tb_memplugin.MemoryCallback</code> and{" "}
        <code>tb_memplugin.MemoryRecorder</code> record the requests of the steps that they trace.
      </p>
    </Nothing>
  );
}

export function WhatIfView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const { value, error, parameter } = store.whatIf.value;
  // While the next answer is computed, and after an error, the last one stays, so that nothing moves.
  const latest = useRef<WhatIf | null>(null);
  if (value !== null) latest.current = value;
  const last = latest.current?.run === run.run && latest.current.device === device ? latest.current : null;
  const shown = value ?? last;
  if (shown?.recorded.steps.length === 0) return <NoRequests run={run} device={device} answer={shown} />;
  const fault = error === null ? null : { parameter: parameter ?? null, sentence: error };
  const isOfCondition = CONDITIONS.some((name) => name === fault?.parameter);
  return (
    <div class="what-if" data-testid="what-if" aria-busy={value === null && error === null}>
      <ConditionsForm answer={shown} fault={fault} />
      {fault && !isOfCondition && <Fault sentence={fault.sentence} />}
      {fault && shown && <p class="last-answer small">Last answer: {unbroken(askedText(shown))}</p>}
      {shown && <Answer answer={shown} />}
      {!shown && error === null && <Skeleton />}
    </div>
  );
}

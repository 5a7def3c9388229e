/** The conditions of the question. Text applies after a pause, or with Enter. */

import type { ComponentChildren } from "preact";

import {
  AS_RECORDED,
  OPTIMIZERS,
  PRECISIONS,
  isAsRecorded,
  conditionHints,
  type ConditionName,
  type Conditions,
  type WhatIf,
} from "../../model/what-if";
import type { Store } from "../../state/store";
import { useStore } from "../shared/context";
import { useDraft } from "../shared/draft";

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

/** A control with its label, and what is wrong with it beside it. */
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

/** A field with a text of its own until it applies. */
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

interface ConditionsFormProps {
  /** The latest answer, null while there is none. */
  answer: WhatIf | null;
  fault: ConditionFault | null;
}

export function ConditionsForm({ answer, fault }: ConditionsFormProps) {
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

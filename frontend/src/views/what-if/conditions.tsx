/** The form of What if: the conditions of the prediction and the budget of the plan. */

import type { ComponentChildren } from "preact";

import {
  AS_RECORDED,
  OPTIMIZERS,
  PRECISIONS,
  changedConditions,
  type ConditionHints,
  type ConditionName,
  type Conditions,
} from "../../model/what-if";
import type { Store } from "../../state/store";
import { useStore, useDraft } from "../shared/context";
import { Choose } from "../shared/controls";

/** What is wrong with the conditions, and with which one of them if it is one alone. */
export interface ConditionFault {
  parameter: string | null;
  sentence: string;
}

export const setCondition = (store: Store, name: ConditionName, value: string): void => {
  const { conditions } = store.choices.peek();
  if (conditions[name] !== value) store.choose({ conditions: { ...conditions, [name]: value } });
};

/** The conditions of the shown answer; a report has the recorded ones only. */
export const appliedOf = (store: Store): Conditions =>
  store.recordedOnly ? AS_RECORDED : store.choices.value.conditions;

interface PlaceProps {
  name: ConditionName;
  label: string;
  faults: readonly ConditionFault[];
  children: ComponentChildren;
}

const idOf = (name: ConditionName): string => `condition-${name}`;

function Place({ name, label, faults, children }: PlaceProps) {
  const fault = faults.find(({ parameter }) => parameter === name);
  return (
    <div class={`condition ${name}`}>
      <span class="condition-head">
        <label for={idOf(name)}>{label}</label>
      </span>
      {children}
      {fault && (
        <p class="condition-fault" role="alert" id={`${idOf(name)}-fault`}>
          {fault.sentence}
        </p>
      )}
    </div>
  );
}

const faultAttributes = (faults: readonly ConditionFault[], name: ConditionName) =>
  faults.some(({ parameter }) => parameter === name) && {
    "aria-invalid": true,
    "aria-describedby": `${idOf(name)}-fault`,
  };

interface FieldProps {
  name: ConditionName;
  label: string;
  placeholder: string;
  type?: "text" | "number";
  title?: string;
  faults: readonly ConditionFault[];
}

function Field({
  name,
  label,
  placeholder,
  type = "text",
  title = "Empty: as recorded",
  faults,
}: FieldProps) {
  const store = useStore();
  const applied = appliedOf(store)[name];
  const field = useDraft(applied, (value) => setCondition(store, name, value));
  const number = type === "number" && { min: 1, step: 1 };
  return (
    <Place name={name} label={label} faults={faults}>
      <input
        id={idOf(name)}
        type={type}
        {...number}
        {...faultAttributes(faults, name)}
        name={name}
        placeholder={placeholder}
        title={title}
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
  faults: readonly ConditionFault[];
}

function Choice({ name, label, options, faults }: ChoiceProps) {
  const store = useStore();
  const value = appliedOf(store)[name];
  // An address may hold another value; the server says what is wrong with it.
  const shown = value === "" || options.includes(value) ? options : [value, ...options];
  return (
    <Place name={name} label={label} faults={faults}>
      <select
        id={idOf(name)}
        {...faultAttributes(faults, name)}
        name={name}
        value={value}
        disabled={store.recordedOnly}
        onChange={(event) => setCondition(store, name, event.currentTarget.value)}
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

export function ConditionsForm({
  hints,
  faults,
}: {
  hints: ConditionHints;
  faults: readonly ConditionFault[];
}) {
  const store = useStore();
  const isChanged = changedConditions(store.choices.value.conditions).length > 0;
  return (
    <form class="conditions" aria-label="Conditions" onSubmit={(event) => event.preventDefault()}>
      <Field
        name="batch_size"
        label="batch size"
        type="number"
        placeholder={hints.batchSize}
        faults={faults}
      />
      <Field name="capacity" label="capacity" placeholder={hints.capacity} faults={faults} />
      <Field
        name="budget"
        label="budget"
        placeholder="capacity"
        title="The most that the peak may be, such as 8GiB"
        faults={faults}
      />
      <Field name="freeze" label="freeze" placeholder="*/block1_*" faults={faults} />
      <Field name="unfreeze" label="unfreeze" placeholder="*/block1_*" faults={faults} />
      <Choice name="optimizer" label="optimizer" options={OPTIMIZERS} faults={faults} />
      <Choice name="precision" label="precision" options={PRECISIONS} faults={faults} />
      {store.recordedOnly ? (
        <p class="small">
          A report contains the recorded conditions only. Other conditions need TensorBoard.
        </p>
      ) : (
        <Choose
          class="quiet"
          style={{ visibility: isChanged ? "visible" : "hidden" }}
          these={{ conditions: AS_RECORDED }}
        >
          Reset
        </Choose>
      )}
    </form>
  );
}

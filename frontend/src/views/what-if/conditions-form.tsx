/** The conditions of the question. Text applies after a pause, or with Enter. */

import { useEffect, useRef, useState } from "preact/hooks";

import { later } from "../../lib/activity";
import { AS_RECORDED, OPTIMIZERS, PRECISIONS, isAsRecorded, type ConditionName, type Conditions } from "../../model/conditions";
import type { Store } from "../../state/store";
import { useStore } from "../shared/context";

const PAUSE_MS = 700;
const GLOBS = "the layers whose whole path matches one of the globs, separated by commas; * matches any characters, also /";

const set = (store: Store, name: ConditionName, value: string): void => {
  const { conditions } = store.choices.peek();
  if (conditions[name] !== value) store.choose({ conditions: { ...conditions, [name]: value } });
};

/** The conditions of the shown answer; a report has the recorded ones only. */
const appliedOf = (store: Store): Conditions => (store.recordedOnly ? AS_RECORDED : store.choices.value.conditions);

interface FieldProps {
  name: ConditionName;
  label: string;
  hint: string;
  placeholder?: string;
  type?: "text" | "number";
}

/** A field with a text of its own until it applies. */
function Field({ name, label, hint, placeholder = "as recorded", type = "text" }: FieldProps) {
  const store = useStore();
  const applied = appliedOf(store)[name];
  const [draft, setDraft] = useState(applied);
  const cancel = useRef(() => {});
  useEffect(() => setDraft(applied), [applied]);
  useEffect(() => () => cancel.current(), []);
  const apply = (value: string): void => {
    cancel.current();
    set(store, name, value);
  };
  const number = type === "number" && { min: 1, step: 1 };
  return (
    <label class={`condition ${name}`} data-tip={hint}>
      <span>{label}</span>
      <input
        type={type}
        {...number}
        name={name}
        value={draft}
        placeholder={placeholder}
        disabled={store.recordedOnly}
        autocomplete="off"
        spellcheck={false}
        onInput={({ currentTarget: { value } }) => {
          setDraft(value);
          cancel.current();
          cancel.current = later(PAUSE_MS, () => set(store, name, value));
        }}
        onBlur={({ currentTarget: { value } }) => apply(value)}
        onKeyDown={(event) => event.key === "Enter" && apply(event.currentTarget.value)}
      />
    </label>
  );
}

function Choice({ name, label, options }: { name: ConditionName; label: string; options: readonly string[] }) {
  const store = useStore();
  const value = appliedOf(store)[name];
  // An address may hold another value; the server says what is wrong with it.
  const shown = value === "" || options.includes(value) ? options : [value, ...options];
  return (
    <label class="condition">
      <span>{label}</span>
      <select name={name} value={value} disabled={store.recordedOnly} onChange={(event) => set(store, name, event.currentTarget.value)}>
        <option value="">as recorded</option>
        {shown.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </label>
  );
}

/** `recorded`: the batch size of the recorded steps, null while unknown. */
export function ConditionsForm({ recorded }: { recorded: number | null }) {
  const store = useStore();
  const { conditions } = store.choices.value;
  return (
    <form class="conditions" aria-label="Conditions" onSubmit={(event) => event.preventDefault()}>
      <Field
        name="batch_size"
        label="batch size"
        type="number"
        hint="Examples in a batch"
        {...(recorded !== null && { placeholder: `${recorded}, as recorded` })}
      />
      <Field name="capacity" label="capacity" hint="The allocator's limit, such as 24GiB" placeholder="such as 24GiB" />
      <Field name="freeze" label="freeze layers" hint={`Freeze ${GLOBS}`} placeholder="such as */block1_*" />
      <Field name="unfreeze" label="unfreeze layers" hint={`Train ${GLOBS}`} placeholder="such as */block1_*" />
      <Choice name="optimizer" label="optimizer" options={OPTIMIZERS} />
      <Choice name="precision" label="precision" options={PRECISIONS} />
      {store.recordedOnly ? (
        <p class="small">A report contains the recorded conditions only. Other conditions need TensorBoard.</p>
      ) : (
        <button type="button" class="quiet" disabled={isAsRecorded(conditions)} onClick={() => store.choose({ conditions: AS_RECORDED })}>
          Reset
        </button>
      )}
    </form>
  );
}

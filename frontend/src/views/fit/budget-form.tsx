/** The budget. It applies after a pause, or with Enter. */

import { useEffect, useRef, useState } from "preact/hooks";

import { later } from "../../lib/activity";
import { useStore } from "../shared/context";

const PAUSE_MS = 700;

export function BudgetForm() {
  const store = useStore();
  const applied = store.recordedOnly ? "" : store.choices.value.budget;
  const [draft, setDraft] = useState(applied);
  const cancel = useRef(() => {});
  useEffect(() => setDraft(applied), [applied]);
  useEffect(() => () => cancel.current(), []);
  const apply = (value: string): void => {
    cancel.current();
    if (store.choices.peek().budget !== value) store.choose({ budget: value.trim() });
  };
  return (
    <form class="conditions" aria-label="Budget" onSubmit={(event) => event.preventDefault()}>
      <label class="condition budget" data-tip="The most that the peak may be, such as 8GiB">
        <span>budget</span>
        <input
          type="text"
          name="budget"
          value={draft}
          placeholder="capacity"
          disabled={store.recordedOnly}
          autocomplete="off"
          spellcheck={false}
          onInput={({ currentTarget: { value } }) => {
            setDraft(value);
            cancel.current();
            cancel.current = later(PAUSE_MS, () => apply(value));
          }}
          onBlur={({ currentTarget: { value } }) => apply(value)}
          onKeyDown={(event) => event.key === "Enter" && apply(event.currentTarget.value)}
        />
      </label>
      {store.recordedOnly && <p class="small">A report contains the plan for the capacity only. Other budgets need TensorBoard.</p>}
    </form>
  );
}

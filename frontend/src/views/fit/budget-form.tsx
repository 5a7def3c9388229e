/** The budget. It applies after a pause, or with Enter. */

import { useStore } from "../shared/context";
import { useDraft } from "../shared/draft";

export function BudgetForm() {
  const store = useStore();
  const applied = store.recordedOnly ? "" : store.choices.value.budget;
  const field = useDraft(applied, (value) => {
    if (store.choices.peek().budget !== value) store.choose({ budget: value.trim() });
  });
  return (
    <form class="conditions" aria-label="Budget" onSubmit={(event) => event.preventDefault()}>
      <label class="condition budget" data-tip="The most that the peak may be, such as 8GiB">
        <span>budget</span>
        <input type="text" name="budget" placeholder="capacity" disabled={store.recordedOnly} {...field} />
      </label>
      {store.recordedOnly && <p class="small">A report contains the plan for the capacity only. Other budgets need TensorBoard.</p>}
    </form>
  );
}

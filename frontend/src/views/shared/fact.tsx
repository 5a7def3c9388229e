/** A named value of an answer, in a list of them. */

interface FactProps {
  name: string;
  label: string;
  value: string;
  note?: string;
  figure?: number | null;
  tip?: string;
}

export function Fact({ name, label, value, note = "", figure, tip }: FactProps) {
  return (
    <div data-figure={name} data-value={figure ?? ""} {...(tip !== undefined && { "data-tip": tip, tabIndex: 0 })}>
      <dt>{label}</dt>
      <dd>
        {value} {note !== "" && <span class="small">{note}</span>}
      </dd>
    </div>
  );
}

/** A row of buttons with one pressed. */

interface SegmentsProps<T extends string> {
  label: string;
  options: readonly T[];
  chosen: T;
  choose: (option: T) => void;
}

export function Segments<T extends string>({ label, options, chosen, choose }: SegmentsProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      <span class="segments-label" aria-hidden="true">
        {label}
      </span>
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === chosen} onClick={() => choose(option)}>
          {option}
        </button>
      ))}
    </div>
  );
}

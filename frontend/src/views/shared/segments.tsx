/** A row of buttons with one pressed. */

interface SegmentsProps<T extends string> {
  label: string;
  /** Whether the label is seen. */
  named?: boolean;
  options: readonly T[];
  chosen: T;
  choose: (option: T) => void;
}

export function Segments<T extends string>({ label, named = true, options, chosen, choose }: SegmentsProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {named && (
        <span class="segments-label" aria-hidden="true">
          {label}
        </span>
      )}
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === chosen} onClick={() => choose(option)}>
          {option}
        </button>
      ))}
    </div>
  );
}

/** Figures as table rows: one unit per column, exact bytes on demand and in `data-bytes`. */

import { createContext, type ComponentChildren, type HTMLAttributes } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";

import {
  formatCount,
  formatFigure,
  formatShare,
  isMinor,
  plural,
  shareOf,
  type Unit,
  formatKnown,
} from "../../lib/bytes";
import {
  categoryLabel,
  categoryMeaning,
  groupKey,
  groupLabel,
  partsText,
  WORDS,
  type WordName,
} from "../../model/categories";
import { fillOf, categoryFill, type Fill } from "../../theme/palette";
import { isMuted, useStore, useCategoryRow, useChoices } from "./context";
import { figured } from "./tips";
import { CATEGORIES, type Category, type Group } from "../../schema";

export const useExact = (): boolean => useChoices().exact;

const UnitContext = createContext<Unit>("B");
/** All figures inside are in this unit, unless exact bytes are shown. */
export const InUnit = UnitContext.Provider;

export const useUnit = (): Unit => useContext(UnitContext);

export function useUnitName(): string {
  const unit = useUnit();
  return useExact() ? "B" : unit;
}

/** Bytes in the unit of the figures around them. */
export function Bytes({ of, none = "–" }: { of: number | null; none?: string }) {
  const [unit, exact] = [useUnit(), useExact()];
  if (of === null) return <>{none}</>;
  return <>{exact ? formatCount(of) : formatFigure(of, unit)}</>;
}

/** A square in the fill of a band, drawn with gradients so that it needs no canvas. */
export const Swatch = ({ fill }: { fill: Fill }) => (
  <span class={`swatch ${fill.pattern}`} style={{ "--fill": fill.colour }} aria-hidden="true" />
);

interface PartsBarProps {
  parts: readonly { category: Category; bytes: number }[];
  /** Bytes of a bar of full length. */
  longest: number;
  trainable: boolean | null;
  /** What the tooltip of a part says of it. */
  explain?: (category: Category) => string;
}

/** The bytes of a layer as a bar of its categories, each in its place in the stack. */
export function PartsBar({ parts, longest, trainable, explain }: PartsBarProps) {
  const { category: selected } = useChoices();
  return (
    <div role="img" aria-label={partsText(parts)}>
      {parts.map(({ category, bytes }) => {
        const { colour, pattern } = fillOf({
          category,
          trainable: trainable === false ? false : null,
        });
        const isPale = isMuted({ hovered: null, category: selected }, [], category);
        return (
          <i
            key={category}
            class={`fill ${pattern}${isPale ? " pale" : ""}`}
            style={{ "--fill": colour, width: `${(bytes / longest) * 100}%` }}
            {...(explain && figured(category, bytes, categoryLabel(category), explain(category)))}
          />
        );
      })}
    </div>
  );
}

interface FigureProps {
  name: string;
  label: ComponentChildren;
  hint?: string;
  source?: string;
  bytes: number | null;
  share?: number | null;
  /** Whether the share is in the tooltip only, because the picture beside the table shows it. */
  pictured?: boolean;
  hidden?: boolean;
  fill?: Fill;
  strong?: boolean;
  onFocus?: (focused: boolean) => void;
  focused?: boolean;
  onChoose?: () => void;
  chosen?: boolean;
}

/** Keys that press a button, for elements that are none. */
export const onPressed = (press: () => void) => (event: KeyboardEvent) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  press();
};

const rowEvents = ({
  onFocus,
  onChoose,
  chosen,
}: Pick<FigureProps, "onFocus" | "onChoose" | "chosen">) => ({
  "aria-current": chosen ? ("true" as const) : undefined,
  onMouseEnter: onFocus && (() => onFocus(true)),
  onMouseLeave: onFocus && (() => onFocus(false)),
  onFocus: onFocus && (() => onFocus(true)),
  onBlur: onFocus && (() => onFocus(false)),
  onClick: onChoose,
  onKeyDown: onChoose && onPressed(onChoose),
});

export const rowClasses = (classes: Record<string, boolean | undefined>): string =>
  Object.keys(classes)
    .filter((name) => classes[name])
    .join(" ");

export function Figure(props: FigureProps) {
  const {
    name,
    label,
    hint,
    source,
    bytes,
    fill,
    strong,
    focused,
    onChoose,
    chosen,
    pictured = false,
  } = props;
  const share = props.share === null || props.share === undefined ? "" : formatShare(props.share);
  return (
    <tr
      class={rowClasses({
        strong,
        zero: bytes === 0,
        focused: focused || chosen,
        choosable: onChoose !== undefined,
      })}
      hidden={props.hidden}
      {...figured(name, bytes, pictured && share !== "" ? `${hint ?? ""}; ${share}` : hint, source)}
      {...rowEvents(props)}
    >
      <th scope="row">
        {fill && <Swatch fill={fill} />}
        <span class="label">{label}</span>
      </th>
      <td class="figure" aria-label={formatKnown(bytes)}>
        <Bytes of={bytes} />
      </td>
      <td class="share">{!pictured && share}</td>
    </tr>
  );
}

type WordFigureProps = Omit<FigureProps, "name" | "label" | "hint" | "source"> & {
  word: WordName;
  name?: string;
  label?: string;
  when: string;
};

/** A figure with the same name and meaning in every view; `when` is its step or moment. */
export function WordFigure({ word, when, label, ...props }: WordFigureProps) {
  const { label: usual, meaning, source } = WORDS[word];
  return (
    <Figure
      name={word}
      {...props}
      label={label ?? usual}
      hint={meaning}
      source={`${source}, ${when}`}
    />
  );
}

const ROWS = "tr[data-tip]:not([hidden])";

/** One stop of the Tab key for the whole table; arrow keys go from row to row. */
function useRows() {
  const table = useRef<HTMLTableElement>(null);
  const shown = () => [...(table.current?.querySelectorAll<HTMLElement>(ROWS) ?? [])];
  useLayoutEffect(() => {
    const rows = shown();
    const stop = rows.find(({ tabIndex }) => tabIndex === 0) ?? rows[0];
    for (const row of rows) row.tabIndex = row === stop ? 0 : -1;
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const rows = shown();
    const now = rows.indexOf(event.target as HTMLElement);
    const goal = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: rows.length - 1 }[event.key];
    const next = goal === undefined || now < 0 ? undefined : rows[goal];
    if (!next) return;
    event.preventDefault();
    for (const row of rows) row.tabIndex = row === next ? 0 : -1;
    next.focus();
  };
  return { ref: table, onKeyDown };
}

export const FigureTable = ({
  testid,
  kind = "",
  children,
}: {
  testid?: string;
  kind?: string;
  children: ComponentChildren;
}) => (
  <table
    {...useRows()}
    class={rowClasses({ figures: true, [kind]: kind !== "", exact: useExact() })}
    data-testid={testid}
  >
    {children}
  </table>
);

export function UnitButton() {
  const store = useStore();
  const unit = useUnitName();
  return (
    <button
      type="button"
      class="unit"
      aria-pressed={useExact()}
      title="Show exact bytes"
      onClick={() => store.choose({ exact: !store.choices.peek().exact })}
    >
      {unit}
    </button>
  );
}

interface SizeCellProps {
  bytes: number | null;
  tip?: string;
  none?: string;
  name?: string;
  class?: string;
  /** Whether nothing stands there for 0. */
  blank?: boolean;
}

export const SizeCell = (props: SizeCellProps) => {
  const { bytes, tip, none = "–", name, class: kind = "number", blank = false } = props;
  return (
    <td class={kind} data-figure={name} data-bytes={bytes ?? ""} data-tip={tip}>
      {!(blank && bytes === 0) && <Bytes of={bytes} none={none} />}
    </td>
  );
};

interface VersusRowProps {
  group: Group;
  name?: string;
  label?: string;
  from: number | null;
  to: number;
  tip: string;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden?: boolean;
  children?: ComponentChildren;
}

export const VersusRow = ({
  group,
  name = groupKey(group),
  label = groupLabel(group),
  from,
  to,
  tip,
  events,
  hidden,
  children,
}: VersusRowProps) => (
  <tr
    hidden={hidden}
    data-figure={name}
    data-from={from ?? ""}
    data-to={to}
    data-tip={tip}
    class={rowClasses({ choosable: true, zero: !from && to === 0, focused: events.chosen })}
    {...rowEvents(events)}
  >
    <th scope="row">
      <Swatch fill={fillOf(group)} />
      <span class="label">{label}</span>
    </th>
    <SizeCell bytes={from} />
    <SizeCell bytes={to} />
    {children}
  </tr>
);

export const Heads = ({
  names,
  numbers = [],
}: {
  names: readonly string[];
  numbers?: readonly string[];
}) => (
  <>
    {names.map((name) => (
      <th key={name} scope="col" class={numbers.includes(name) ? "number" : ""}>
        {name}
      </th>
    ))}
  </>
);

/** The head of a table whose columns have names only. */
export const TableHead = (props: Parameters<typeof Heads>[0]) => (
  <thead>
    <tr>
      <Heads {...props} />
    </tr>
  </thead>
);

interface PanelProps {
  label: string;
  step?: number | null;
  title?: string;
  /** What stands beside the title. */
  why?: ComponentChildren;
  about?: ComponentChildren;
  /** Attributes of the line about it. */
  line?: HTMLAttributes<HTMLParagraphElement>;
  unit: Unit;
  children: ComponentChildren;
}

/** Figures of one step or moment, all in one unit. */
export const Panel = ({
  label,
  step,
  title = `Step ${step ?? "?"}`,
  why,
  unit,
  about,
  line = {},
  children,
}: PanelProps) => (
  <InUnit value={unit}>
    <aside class="panel" aria-label={label}>
      <header class="panel-head">
        <h2 {...(step !== undefined && { "data-testid": "step", "data-step": step ?? "" })}>
          {title}
          {why}
          <UnitButton />
        </h2>
        {about !== undefined && (
          <p class="small one-line" {...line}>
            {about}
          </p>
        )}
      </header>
      {children}
    </aside>
  </InUnit>
);

export interface FoldedRow {
  key: string;
  /**
   * Whether it may be folded: for all steps at once, so that no row comes or goes under the
   * pointer.
   */
  quiet: boolean;
  chosen?: boolean | undefined;
  /** Its colour and name, where the picture shows it at another step: they stay in sight. */
  legend?: ComponentChildren;
  row: (hidden: boolean) => ComponentChildren;
}

/** One quiet row without a legend is shown: folding it saves nothing. */
export function FoldedRows({
  rows,
  columns,
  sums,
}: {
  rows: readonly FoldedRow[];
  columns: number;
  sums?: ComponentChildren;
}) {
  const [open, setOpen] = useState(false);
  const quiet = rows.filter((one) => one.quiet && !one.chosen);
  const others = quiet.filter(({ legend }) => !legend).length;
  const folds = quiet.length > 1 || others < quiet.length;
  return (
    <>
      {rows.map((one) => one.row(folds && !open && quiet.includes(one)))}
      {folds && (
        <tr class="folded-rows">
          <th scope="row" colSpan={sums === undefined || open ? columns : 1}>
            <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
              {open
                ? "Show fewer"
                : [
                    ...quiet.map(({ legend }) => legend),
                    others > 0 && `${others < quiet.length ? "+ " : ""}${plural(others, "other")}`,
                  ]}
            </button>
          </th>
          {!open && sums}
        </tr>
      )}
    </>
  );
}

export interface BreakdownRow extends Omit<FigureProps, "hidden" | "pictured"> {
  /** The most that the figure has at any step that the table may show; null if it is unknown. */
  highest: number | null;
  /**
   * Bytes at the selected step: what has none there has no row, also while the pointer is at
   * another step.
   */
  selected?: number | null;
}

interface FigureRowsProps {
  rows: readonly BreakdownRow[];
  /**
   * The most that the sum of the rows has at any such step: which rows are small does not change
   * under the pointer.
   */
  whole: number;
}

export function FigureRows({ rows, whole }: FigureRowsProps) {
  const isQuiet = ({ highest, selected }: BreakdownRow): boolean =>
    selected === 0 || isMinor(highest, whole);
  const sum = rows.reduce(
    (total, one) => total + (isQuiet(one) && !one.chosen ? (one.bytes ?? 0) : 0),
    0,
  );
  return (
    <FoldedRows
      columns={3}
      sums={
        <>
          <td class="figure">{sum !== 0 && <Bytes of={sum} />}</td>
          <td class="share" />
        </>
      }
      rows={rows
        .filter(({ highest, chosen }) => highest !== 0 || chosen)
        .map((one) => {
          const { highest, ...figure } = one;
          const { name: key, label, fill, focused, chosen } = figure;
          const legend = fill && !isMinor(highest, whole) && (
            <span key={key} class={focused ? "focused" : ""}>
              <Swatch fill={fill} />
              {label}
            </span>
          );
          const row = (hidden: boolean) => (
            <Figure key={key} {...figure} hidden={hidden} pictured />
          );
          return { key, quiet: isQuiet(one), chosen, row, legend };
        })}
    />
  );
}

interface CategoryRowsProps {
  /** Null where unknown; categories that are missing have no row. */
  bytes: ReadonlyMap<Category, number | null>;
  /**
   * The most that each has at any step that the table may show: rows that are never seen are
   * folded. By default `bytes`.
   */
  highest?: ReadonlyMap<Category, number | null>;
  total: number;
  whole?: number;
  source: (category: Category, bytes: number) => string;
}

export function CategoryRows({
  bytes,
  highest = bytes,
  total,
  whole = total,
  source,
}: CategoryRowsProps) {
  const ofCategory = useCategoryRow();
  const rows = CATEGORIES.filter((category) => bytes.has(category)).reverse();
  return (
    <FigureRows
      whole={whole}
      rows={rows.map((category) => {
        const own = bytes.get(category) ?? null;
        return {
          ...ofCategory(category, category),
          name: category,
          highest: highest.get(category) ?? null,
          label: categoryLabel(category),
          hint: categoryMeaning(category),
          source: source(category, own ?? 0),
          bytes: own,
          share: shareOf(own ?? 0, total),
          fill: categoryFill(category),
        };
      })}
    />
  );
}

interface FactProps {
  name: string;
  label: string;
  value: string;
  note?: string;
  figure?: number | null;
  tip?: string;
}

export const Fact = ({ name, label, value, note = "", figure, tip }: FactProps) => (
  <div
    data-figure={name}
    data-value={figure ?? ""}
    {...(tip !== undefined && { "data-tip": tip, tabIndex: 0 })}
  >
    <dt>{label}</dt>
    <dd>
      {value} {note !== "" && <span class="small">{note}</span>}
    </dd>
  </div>
);

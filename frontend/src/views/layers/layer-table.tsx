/**
 * The table of layers. Only visible rows are in the document, so thousands cost no more than
 * dozens.
 */

import { useEffect, useMemo } from "preact/hooks";

import { formatCount, formatFigure, formatShare, type Unit } from "../../lib/bytes";
import { categoryLabel, categoryMeaning, partsText } from "../../model/categories";
import {
  countText,
  outputFacts,
  shapeText,
  sizesText,
  type LayerFigures,
  type LayerGroup,
  type SortKey,
} from "../../model/layers";
import { NOT_TIED, namesOf } from "../../model/run";
import { SIZE_MEANINGS, sizesOfPhase, type LayerSizes } from "../../model/snapshot";
import { fillOf } from "../../theme/palette";
import { isMuted, schemeOf, useStore } from "../shared/context";
import { Swatch, useFigureText } from "../shared/figures";
import { Filler, useScrollWindow } from "../shared/long-table";
import { tipOf } from "../shared/tips";
import { CATEGORIES, type Category } from "../../schema";

const ROW_HEIGHT = 28;

const AFTER = 2;

const hasDigit = (bytes: number, unit: Unit): boolean =>
  !/^(0|[<>]-?0\.01)$/.test(formatFigure(bytes, unit));

/**
 * Categories with a column: those that the run's step has. The ones too small for the column's unit
 * share one.
 */
const shownCategories = (all: LayerGroup, unit: Unit): Category[] =>
  CATEGORIES.filter((category) => hasDigit(all.bytes[category], unit));

const partsOf = ({ bytes }: LayerFigures | LayerGroup) =>
  CATEGORIES.filter((category) => bytes[category] > 0).map((category) => ({
    category,
    bytes: bytes[category],
  }));

/**
 * The figure of the categories without a column, and "unattributed 3.0 MiB, inputs 1.5 MiB",
 * largest first.
 */
function otherCategories(
  of: LayerFigures | LayerGroup,
  shown: readonly Category[],
): { bytes: number; text: string } {
  const parts = partsOf(of)
    .filter(({ category }) => !shown.includes(category))
    .sort((a, b) => b.bytes - a.bytes);
  return { bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0), text: partsText(parts) };
}

interface Column {
  key: SortKey;
  label: string;
  hint: string;
}

type Line = { kind: "group"; group: LayerGroup } | { kind: "layer"; layer: LayerFigures };

const isText = (key: SortKey): boolean => key === "path" || key === "type";

/** Whether the rows are in an order that is seen without a column for each category. */
export const isBrief = (sort: SortKey | null): boolean =>
  sort === null || sort === "path" || sort === "total";

/**
 * What a click on a header sorts by: a second one goes back, from text to the model's order, from a
 * size to the total.
 */
const nextSort = (key: SortKey, sort: SortKey | null): SortKey | null =>
  sort !== key ? key : isText(key) ? null : "total";

function SortButton({
  column,
  sort,
  choose,
}: {
  column: Column;
  sort: SortKey | null;
  choose: (key: SortKey | null) => void;
}) {
  const scheme = schemeOf(useStore());
  const { key, label, hint } = column;
  const category = CATEGORIES.find((name) => name === key);
  const sorted = sort === key;
  const [first, ...rest] = label.split(" ");
  return (
    <th
      scope="col"
      class={isText(key) ? key : "number"}
      aria-sort={sorted ? (isText(key) ? "ascending" : "descending") : "none"}
    >
      <button type="button" title={hint} onClick={() => choose(nextSort(key, sort))}>
        <span class="together">
          {category && <Swatch fill={fillOf(category, null, scheme)} />}
          {first}
        </span>{" "}
        {rest.join(" ")}
        {sorted && (
          <span class="arrow" aria-hidden="true">
            {isText(key) ? " ▲" : " ▼"}
          </span>
        )}
      </button>
    </th>
  );
}

interface HeaderProps {
  columns: readonly Column[];
  before: number;
  others: boolean;
  brief: boolean;
  sort: SortKey | null;
  choose: (key: SortKey | null) => void;
}

function Header({ columns, before, others, brief, sort, choose }: HeaderProps) {
  const button = (column: Column) => (
    <SortButton key={column.key} column={column} sort={sort} choose={choose} />
  );
  return (
    <thead>
      <tr>
        {columns.slice(0, before).map(button)}
        <th scope="col" class="number share">
          share
        </th>
        {brief ? (
          <th scope="col" class="parts">
            <span class="unseen">categories</span>
          </th>
        ) : (
          <>
            {columns.slice(before, -AFTER).map(button)}
            {others && (
              <th scope="col" class="number" title="Categories too small for a column">
                others
              </th>
            )}
            {columns.slice(-AFTER).map(button)}
            <th scope="col" class="shape">
              output shape
            </th>
          </>
        )}
      </tr>
    </thead>
  );
}

interface BytesProps {
  name: Category | keyof LayerSizes | "others";
  bytes: number;
  unit: Unit;
  tip: string;
  chosen?: boolean;
}

function Bytes({ name, bytes, unit, tip, chosen }: BytesProps) {
  const text = useFigureText(unit);
  return (
    <td
      class={chosen ? "number chosen" : "number"}
      data-figure={name}
      data-bytes={bytes}
      data-tip={tip}
    >
      {bytes !== 0 && text(bytes)}
    </td>
  );
}

function Output({ layer, unit }: { layer: LayerFigures; unit: Unit }) {
  const text = useFigureText(unit);
  if (layer.path === null) return <td />;
  const { output_bytes: bytes } = layer;
  return (
    <td
      class="number output"
      data-bytes={bytes ?? ""}
      data-tip={tipOf(bytes, ...outputFacts(layer))}
    >
      {bytes === null ? "–" : text(bytes)}
    </td>
  );
}

const Parameters = ({ count }: { count: number | null }) => (
  <td class="number" data-parameters={count ?? ""}>
    {count !== null && count > 0 && formatCount(count)}
  </td>
);

export type Explain = (
  of: LayerFigures | LayerGroup,
  figure: Category | keyof LayerSizes | "others",
) => string;

/** A layer's bytes as a bar of its categories, each in its place in the stack. */
function Parts({ of, longest, explain }: RowProps<LayerFigures | LayerGroup>) {
  const store = useStore();
  const { category: selected } = store.choices.value;
  const parts = partsOf(of);
  return (
    <td class="parts">
      {of.total > 0 && of.total <= longest && (
        <div role="img" aria-label={partsText(parts)}>
          {parts.map(({ category, bytes }) => {
            const fill = fillOf(
              category,
              "trainable" in of && of.trainable === false ? false : null,
              schemeOf(store),
            );
            const pale = isMuted({ hovered: null, category: selected }, [], category)
              ? " pale"
              : "";
            return (
              <i
                key={category}
                class={`fill ${fill.pattern}${pale}`}
                style={{ "--fill": fill.colour, width: `${(bytes / longest) * 100}%` }}
                data-figure={category}
                data-bytes={bytes}
                data-tip={tipOf(bytes, categoryLabel(category), explain(of, category))}
              />
            );
          })}
        </div>
      )}
    </td>
  );
}

interface RowProps<T> {
  of: T;
  brief: boolean;
  /** Bytes of the longest bar; a row of more has none. */
  longest: number;
  sizes: readonly (keyof LayerSizes)[];
  categories: readonly Category[];
  others: boolean;
  unit: Unit;
  total: number;
  explain: Explain;
}

function Cells(props: RowProps<LayerFigures | LayerGroup>) {
  const { of, sizes, categories, others, unit, total, explain } = props;
  const { category: selected } = useStore().choices.value;
  const rest = otherCategories(of, categories);
  return (
    <>
      {sizes.map((size) => (
        <Bytes
          key={size}
          name={size}
          bytes={of[size]}
          unit={unit}
          tip={tipOf(of[size], explain(of, size))}
        />
      ))}
      <td class="number share">{total && of.total ? formatShare(of.total / total) : ""}</td>
      {props.brief ? (
        <Parts {...props} />
      ) : (
        <>
          {categories.map((category) => (
            <Bytes
              key={category}
              name={category}
              bytes={of.bytes[category]}
              unit={unit}
              tip={tipOf(of.bytes[category], explain(of, category))}
              chosen={category === selected}
            />
          ))}
          {others && (
            <Bytes
              name="others"
              bytes={rest.bytes}
              unit={unit}
              tip={tipOf(rest.bytes, rest.text || null, explain(of, "others"))}
            />
          )}
          <Parameters count={of.parameters} />
          {"title" in of ? <td /> : <Output layer={of} unit={unit} />}
          <td class="shape" title={"title" in of ? "" : shapeText(of)}>
            {"title" in of || of.path === null ? "" : sizesText(of)}
          </td>
        </>
      )}
    </>
  );
}

function GroupRow({ kind, ...props }: RowProps<LayerGroup> & { kind: "subtotal" | "totals" }) {
  const { grouping } = useStore().choices.value;
  const { title } = props.of;
  const count = countText(props.of, kind === "totals" ? "trainable" : grouping);
  return (
    <tr class={kind} data-group={title}>
      <th scope={kind === "totals" ? "row" : "rowgroup"} title={`${title ?? ""} ${count.more}`}>
        {title} <span class="count">{count.text}</span>
      </th>
      {!props.brief && <td class="type" />}
      <Cells {...props} />
    </tr>
  );
}

function LayerRow({
  isPlanned,
  name,
  ...props
}: RowProps<LayerFigures> & Pick<LayerTableProps, "isPlanned"> & { name: string }) {
  const store = useStore();
  const { path, type, training, recomputed } = props.of;
  const end = name.lastIndexOf("/") + 1;
  const selected = path !== null && path === store.choices.value.layer;
  return (
    <tr class={selected ? "selected" : ""} data-layer={path ?? ""}>
      <th scope="row" title={path ?? NOT_TIED}>
        {path === null ? (
          NOT_TIED
        ) : (
          <button
            type="button"
            class="layer-name"
            aria-pressed={selected}
            onClick={() => store.choose({ layer: selected ? null : path })}
          >
            <span class="small">{name.slice(0, end)}</span>
            <span>{name.slice(end)}</span>
          </button>
        )}
        {training === "frozen" && <span class="tag"> frozen</span>}
        {recomputed ? (
          <span class="tag"> recomputed</span>
        ) : (
          path !== null && isPlanned(path) && <span class="tag"> recomputed by plan</span>
        )}
      </th>
      {!props.brief && (
        <td class="type" title={type ?? ""}>
          {type ?? ""}
        </td>
      )}
      <Cells {...props} />
    </tr>
  );
}

interface LayerTableProps {
  groups: readonly LayerGroup[];
  all: LayerGroup;
  totals: LayerGroup;
  /** Whether a bar stands for most of the columns. */
  brief: boolean;
  unit: Unit;
  total: number;
  sort: SortKey | null;
  onSort: (key: SortKey | null) => void;
  explain: Explain;
  isPlanned: (path: string) => boolean;
}

export function LayerTable({
  groups,
  all,
  totals,
  brief,
  unit,
  total,
  sort,
  onSort,
  explain,
  isPlanned,
}: LayerTableProps) {
  const store = useStore();
  const { layer: selected } = store.choices.value;
  const categories = useMemo(() => shownCategories(all, unit), [all, unit]);
  const others = otherCategories(all, categories).bytes > 0;
  const lines = useMemo(
    () =>
      groups.flatMap((group): Line[] => [
        ...(group.title === null ? [] : [{ kind: "group" as const, group }]),
        ...group.layers.map((layer) => ({ kind: "layer" as const, layer })),
      ]),
    [groups],
  );
  const names = useMemo(() => namesOf(all.layers.flatMap(({ path }) => path ?? [])), [all]);
  const { host, first, last, reveal, onScroll } = useScrollWindow(lines.length, ROW_HEIGHT);
  useEffect(() => {
    if (selected !== null)
      reveal(lines.findIndex((line) => line.kind === "layer" && line.layer.path === selected));
  }, [selected, lines]);
  const sizes = brief ? (["total"] as const) : sizesOfPhase(store.phase.value);
  const barOf = (line: Line): number => (line.kind === "group" ? line.group : line.layer).total;
  const longest = useMemo(
    () => lines.reduce((most, line) => Math.max(most, barOf(line)), 1),
    [lines],
  );
  const columns: Column[] = [
    { key: "path", label: "layer", hint: "Sort by name" },
    ...(brief ? [] : [{ key: "type" as const, label: "type", hint: "Sort by type" }]),
    ...sizes.map((key) => ({ key, label: key, hint: SIZE_MEANINGS[key] })),
    ...categories.map((category) => ({
      key: category,
      label: categoryLabel(category),
      hint: categoryMeaning(category),
    })),
    { key: "parameters", label: "parameters", hint: "Number of elements of the layer's weights" },
    { key: "output_bytes", label: "output", hint: "Output size per batch" },
  ];
  const shared = { brief, longest, sizes, categories, others, unit, total, explain };
  return (
    <div
      class="layer-scroll"
      ref={host}
      onScroll={onScroll}
      tabIndex={0}
      role="region"
      aria-label="Layers"
    >
      <table
        class={`layers layer-table${brief ? " brief" : ""}`}
        data-testid="layers"
        aria-rowcount={lines.length + 1}
      >
        <Header
          columns={columns}
          before={brief ? 2 : 2 + sizes.length}
          others={others}
          brief={brief}
          sort={sort}
          choose={onSort}
        />
        <tbody>
          <Filler rows={first} height={ROW_HEIGHT} />
          {lines
            .slice(first, last)
            .map((line, index) =>
              line.kind === "group" ? (
                <GroupRow
                  key={`group ${line.group.title ?? ""}`}
                  kind="subtotal"
                  of={line.group}
                  {...shared}
                />
              ) : (
                <LayerRow
                  key={line.layer.path ?? `none ${index + first}`}
                  of={line.layer}
                  name={names.get(line.layer.path ?? "") ?? ""}
                  isPlanned={isPlanned}
                  {...shared}
                />
              ),
            )}
          <Filler rows={lines.length - last} height={ROW_HEIGHT} />
        </tbody>
        <tfoot>
          <GroupRow kind="totals" of={totals} {...shared} />
        </tfoot>
      </table>
    </div>
  );
}

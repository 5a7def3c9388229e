/** The table of layers. Only visible rows are in the document, so thousands cost no more than dozens. */

import { useEffect, useMemo } from "preact/hooks";

import { formatBytes, formatCount, formatFigure, formatShare, type Unit } from "../../lib/bytes";
import { categoryLabel, categoryMeaning } from "../../model/categories";
import { countText, outputFacts, shapeText, sizesText, type LayerFigures, type LayerGroup, type SortKey } from "../../model/layers";
import { NOT_TIED, namesOf } from "../../model/run";
import { SIZE_MEANINGS, sizesOfPhase, type LayerSizes } from "../../model/snapshot";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { Swatch, useFigureText } from "../shared/figures";
import { Filler, useScrollWindow } from "../shared/long-table";
import { tipOf } from "../shared/tips";
import { CATEGORIES, type Category } from "../../schema";

const ROW_HEIGHT = 28;

const AFTER = 2;

const hasDigit = (bytes: number, unit: Unit): boolean => !/^(0|[<>]-?0\.01)$/.test(formatFigure(bytes, unit));

/** Categories with a column: those that the run's step has. The ones too small for the column's unit share one. */
const shownCategories = (all: LayerGroup, unit: Unit): Category[] => CATEGORIES.filter((category) => hasDigit(all.bytes[category], unit));

/** The figure of the categories without a column, and "unattributed 3.0 MiB, inputs 1.5 MiB", largest first. */
function otherCategories(of: LayerFigures | LayerGroup, shown: readonly Category[]): { bytes: number; text: string } {
  const own = CATEGORIES.filter((category) => !shown.includes(category) && of.bytes[category] > 0);
  const ordered = own.sort((a, b) => of.bytes[b] - of.bytes[a]);
  return {
    bytes: own.reduce((sum, category) => sum + of.bytes[category], 0),
    text: ordered.map((category) => `${categoryLabel(category)} ${formatBytes(of.bytes[category])}`).join(", "),
  };
}

interface Column {
  key: SortKey;
  label: string;
  hint: string;
}

type Line = { kind: "group"; group: LayerGroup } | { kind: "layer"; layer: LayerFigures };

const isText = (key: SortKey): boolean => key === "path" || key === "type";

/** What a click on a header sorts by: a second one goes back, from text to the model's order, from a size to the total. */
const nextSort = (key: SortKey, sort: SortKey | null): SortKey | null => (sort !== key ? key : isText(key) ? null : "total");

function SortButton({ column, sort, choose }: { column: Column; sort: SortKey | null; choose: (key: SortKey | null) => void }) {
  const scheme = schemeOf(useStore());
  const { key, label, hint } = column;
  const category = CATEGORIES.find((name) => name === key);
  const sorted = sort === key;
  const [first, ...rest] = label.split(" ");
  return (
    <th scope="col" class={isText(key) ? key : "number"} aria-sort={sorted ? (isText(key) ? "ascending" : "descending") : "none"}>
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
  sort: SortKey | null;
  choose: (key: SortKey | null) => void;
}

function Header({ columns, before, others, sort, choose }: HeaderProps) {
  const button = (column: Column) => <SortButton key={column.key} column={column} sort={sort} choose={choose} />;
  return (
    <thead>
      <tr>
        {columns.slice(0, before).map(button)}
        <th scope="col" class="number share">
          share
        </th>
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
    <td class={chosen ? "number chosen" : "number"} data-figure={name} data-bytes={bytes} data-tip={tip}>
      {bytes !== 0 && text(bytes)}
    </td>
  );
}

function Output({ layer, unit }: { layer: LayerFigures; unit: Unit }) {
  const text = useFigureText(unit);
  if (layer.path === null) return <td />;
  const { output_bytes: bytes } = layer;
  return (
    <td class="number output" data-bytes={bytes ?? ""} data-tip={tipOf(bytes, ...outputFacts(layer))}>
      {bytes === null ? "–" : text(bytes)}
    </td>
  );
}

const Parameters = ({ count }: { count: number | null }) => (
  <td class="number" data-parameters={count ?? ""}>
    {count !== null && count > 0 && formatCount(count)}
  </td>
);

export type Explain = (of: LayerFigures | LayerGroup, figure: Category | keyof LayerSizes | "others") => string;

interface RowProps<T> {
  of: T;
  sizes: readonly (keyof LayerSizes)[];
  categories: readonly Category[];
  others: boolean;
  unit: Unit;
  total: number;
  explain: Explain;
}

function Cells({ of, sizes, categories, others, unit, total, explain }: RowProps<LayerFigures | LayerGroup>) {
  const { category: selected } = useStore().choices.value;
  const rest = otherCategories(of, categories);
  return (
    <>
      {sizes.map((size) => (
        <Bytes key={size} name={size} bytes={of[size]} unit={unit} tip={tipOf(of[size], explain(of, size))} />
      ))}
      <td class="number share">{total && of.total ? formatShare(of.total / total) : ""}</td>
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
      {others && <Bytes name="others" bytes={rest.bytes} unit={unit} tip={tipOf(rest.bytes, rest.text || null, explain(of, "others"))} />}
      <Parameters count={of.parameters} />
      {"title" in of ? <td /> : <Output layer={of} unit={unit} />}
    </>
  );
}

function GroupRow({ kind, ...props }: RowProps<LayerGroup> & { kind: "subtotal" | "totals" }) {
  const { grouping } = useStore().choices.value;
  const { title } = props.of;
  const count = countText(props.of, kind === "totals" ? "trainable" : grouping);
  return (
    <tr class={kind} data-group={title}>
      <th scope={kind === "totals" ? "row" : "rowgroup"} title={title ?? ""}>
        {title}
      </th>
      <td class="type count" title={count.more}>
        {count.text}
      </td>
      <Cells {...props} />
      <td class="shape" />
    </tr>
  );
}

function LayerRow({ isPlanned, name, ...props }: RowProps<LayerFigures> & Pick<LayerTableProps, "isPlanned"> & { name: string }) {
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
          <button type="button" class="layer-name" aria-pressed={selected} onClick={() => store.choose({ layer: selected ? null : path })}>
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
      <td class="type" title={type ?? ""}>
        {type ?? ""}
      </td>
      <Cells {...props} />
      <td class="shape" title={shapeText(props.of)}>
        {path === null ? "" : sizesText(props.of)}
      </td>
    </tr>
  );
}

interface LayerTableProps {
  groups: readonly LayerGroup[];
  all: LayerGroup;
  totals: LayerGroup;
  unit: Unit;
  total: number;
  sort: SortKey | null;
  onSort: (key: SortKey | null) => void;
  explain: Explain;
  isPlanned: (path: string) => boolean;
}

export function LayerTable({ groups, all, totals, unit, total, sort, onSort, explain, isPlanned }: LayerTableProps) {
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
    if (selected !== null) reveal(lines.findIndex((line) => line.kind === "layer" && line.layer.path === selected));
  }, [selected, lines]);
  const sizes = sizesOfPhase(store.phase.value);
  const columns: Column[] = [
    { key: "path", label: "layer", hint: "Sort by name" },
    { key: "type", label: "type", hint: "Sort by type" },
    ...sizes.map((key) => ({ key, label: key, hint: SIZE_MEANINGS[key] })),
    ...categories.map((category) => ({ key: category, label: categoryLabel(category), hint: categoryMeaning(category) })),
    { key: "parameters", label: "parameters", hint: "Number of elements of the layer's weights" },
    { key: "output_bytes", label: "output", hint: "Output size per batch" },
  ];
  const shared = { sizes, categories, others, unit, total, explain };
  return (
    <div class="layer-scroll" ref={host} onScroll={onScroll} tabIndex={0} role="region" aria-label="Layers">
      <table class="layers layer-table" data-testid="layers" aria-rowcount={lines.length + 1}>
        <Header columns={columns} before={2 + sizes.length} others={others} sort={sort} choose={onSort} />
        <tbody>
          <Filler rows={first} height={ROW_HEIGHT} />
          {lines
            .slice(first, last)
            .map((line, index) =>
              line.kind === "group" ? (
                <GroupRow key={`group ${line.group.title ?? ""}`} kind="subtotal" of={line.group} {...shared} />
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

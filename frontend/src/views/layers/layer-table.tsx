/**
 * The table of layers. Only visible rows are in the document, so thousands cost no more than
 * dozens.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import {
  formatCount,
  formatFigure,
  formatShare,
  type Unit,
  totalBytes,
  largestFirst,
} from "../../lib/bytes";
import { categoryLabel, categoryMeaning, partsText } from "../../model/categories";
import {
  countText,
  outputFacts,
  partsOf,
  shapeText,
  sizesText,
  type LayerFigures,
  type LayerGroup,
  type SortKey,
} from "../../model/layers";
import { NOT_TIED, namesOf } from "../../model/run";
import { SIZE_MEANINGS, sizesOfPhase, type LayerSizes } from "../../model/snapshot";
import { categoryFill, fillOf } from "../../theme/palette";
import { useStore, useChoices } from "../shared/context";
import { Choose } from "../shared/controls";
import { PartsBar, SizeCell, Swatch, useUnit } from "../shared/figures";
import { LongTable, useScrollWindow } from "../shared/long-table";
import { tipOf } from "../shared/tips";
import { CATEGORIES, type Category, type Phase } from "../../schema";

const hasDigit = (bytes: number, unit: Unit): boolean =>
  !/^(0|[<>]-?0\.01)$/.test(formatFigure(bytes, unit));

/**
 * Categories with a column: those that the run's step has. The ones too small for the column's unit
 * share one.
 */
const shownCategories = (all: LayerGroup, unit: Unit): Category[] =>
  CATEGORIES.filter((category) => hasDigit(all.bytes[category], unit));

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
    .sort(largestFirst);
  return { bytes: totalBytes(parts), text: partsText(parts) };
}

type Of = LayerFigures | LayerGroup;
type FigureName = Category | keyof LayerSizes | "others";
export type Explain = (of: Of, figure: FigureName) => string;

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

interface SortButtonProps {
  of: SortKey;
  label?: string;
  hint: string;
}

function SortButton({ of, label = of, hint }: SortButtonProps) {
  const { sort } = useChoices();
  const category = CATEGORIES.find((name) => name === of);
  const [first, ...rest] = label.split(" ");
  return (
    <th
      scope="col"
      class={isText(of) ? of : "number"}
      aria-sort={sort === of ? (isText(of) ? "ascending" : "descending") : "none"}
    >
      <Choose title={hint} these={{ sort: nextSort(of, sort) }}>
        <span class="together">
          {category && <Swatch fill={categoryFill(category)} />}
          {first}
        </span>{" "}
        {rest.join(" ")}
        {sort === of && (
          <span class="arrow" aria-hidden="true">
            {isText(of) ? " ▲" : " ▼"}
          </span>
        )}
      </Choose>
    </th>
  );
}

interface Column {
  head: ComponentChildren;
  cell: (of: Of) => ComponentChildren;
}

interface Content {
  all: LayerGroup;
  unit: Unit;
  /** Bytes of the longest bar; a row of more has none. */
  longest: number;
  phase: Phase;
  selected: Category | null;
  explain: Explain;
}

/** A column of one figure; `more` is said of it. */
function figureColumn(
  name: FigureName,
  head: ComponentChildren,
  bytesOf: (of: Of) => number,
  { selected, explain }: Content,
  more?: (of: Of) => string | null,
): Column {
  return {
    head,
    cell: (of) => {
      const bytes = bytesOf(of);
      const tip = tipOf(bytes, more?.(of), explain(of, name));
      const kind = name === selected ? "number chosen" : "number";
      return <SizeCell key={name} class={kind} name={name} bytes={bytes} tip={tip} blank />;
    },
  };
}

const shareText = (of: Of, { all: { total } }: Content): string =>
  total && of.total ? formatShare(of.total / total) : "";

const shareColumn = (content: Content): Column => ({
  head: (
    <th scope="col" class="number share">
      share
    </th>
  ),
  cell: (of) => <td class="number share">{shareText(of, content)}</td>,
});

const sizeColumn = (size: keyof LayerSizes, content: Content): Column =>
  figureColumn(
    size,
    <SortButton key={size} of={size} hint={SIZE_MEANINGS[size]} />,
    (of) => of[size],
    content,
    (of) => (size === "total" && of.total > 0 ? `${shareText(of, content)} of the total` : null),
  );

const barColumn = ({ longest, explain }: Content): Column => ({
  head: (
    <th scope="col" class="parts">
      <span class="unseen">categories</span>
    </th>
  ),
  cell: (of) => (
    <td class="parts">
      {of.total > 0 && of.total <= longest && (
        <PartsBar
          parts={partsOf(of)}
          longest={longest}
          trainable={"trainable" in of ? of.trainable : null}
          explain={(category) => explain(of, category)}
        />
      )}
    </td>
  ),
});

const briefColumns = (content: Content): Column[] => [
  sizeColumn("total", content),
  barColumn(content),
];

const parametersColumn: Column = {
  head: <SortButton of="parameters" hint="Number of elements of the layer's weights" />,
  cell: ({ parameters: count }) => (
    <td class="number" data-parameters={count ?? ""}>
      {count !== null && count > 0 && formatCount(count)}
    </td>
  ),
};

const outputColumn: Column = {
  head: <SortButton of="output_bytes" label="output" hint="Output size per batch" />,
  cell: (of) =>
    "title" in of || of.path === null ? (
      <td />
    ) : (
      <SizeCell
        class="number output"
        bytes={of.output_bytes}
        tip={tipOf(of.output_bytes, ...outputFacts(of))}
      />
    ),
};

const shapeColumn: Column = {
  head: (
    <th scope="col" class="shape">
      output shape
    </th>
  ),
  cell: (of) =>
    "title" in of ? (
      <td class="shape" title="" />
    ) : (
      <td class="shape" title={shapeText(of)}>
        {of.path === null ? "" : sizesText(of)}
      </td>
    ),
};

function allColumns(content: Content): Column[] {
  const { all, unit, phase } = content;
  const categories = shownCategories(all, unit);
  const ofCategory = (category: Category): Column => {
    const about = { label: categoryLabel(category), hint: categoryMeaning(category) };
    const head = <SortButton key={category} of={category} {...about} />;
    return figureColumn(category, head, ({ bytes }) => bytes[category], content);
  };
  const others = figureColumn(
    "others",
    <th scope="col" class="number" title="Categories too small for a column">
      others
    </th>,
    (of) => otherCategories(of, categories).bytes,
    content,
    (of) => otherCategories(of, categories).text,
  );
  return [
    ...sizesOfPhase(phase).map((size) => sizeColumn(size, content)),
    shareColumn(content),
    ...categories.map(ofCategory),
    ...(otherCategories(all, categories).bytes > 0 ? [others] : []),
    parametersColumn,
    outputColumn,
    shapeColumn,
  ];
}

interface RowProps<T> {
  of: T;
  brief: boolean;
  columns: readonly Column[];
}

function GroupRow({
  kind,
  of,
  brief,
  columns,
}: RowProps<LayerGroup> & { kind: "subtotal" | "totals" }) {
  const { grouping } = useChoices();
  const { title } = of;
  const count = countText(of, kind === "totals" ? "trainable" : grouping);
  return (
    <tr class={kind} data-group={title}>
      <th scope={kind === "totals" ? "row" : "rowgroup"} title={`${title ?? ""} ${count.more}`}>
        {title} <span class="count">{count.text}</span>
      </th>
      {!brief && <td class="type" />}
      {columns.map(({ cell }) => cell(of))}
    </tr>
  );
}

interface LayerRowProps extends RowProps<LayerFigures> {
  name: string;
  isPlanned: (path: string) => boolean;
}

function LayerRow({ isPlanned, name, of, brief, columns }: LayerRowProps) {
  const { layer } = useChoices();
  const { path, type, training, recomputed } = of;
  const end = name.lastIndexOf("/") + 1;
  const selected = path !== null && path === layer;
  return (
    <tr class={selected ? "selected" : ""} data-layer={path ?? ""}>
      <th scope="row" title={path ?? NOT_TIED}>
        {path === null ? (
          NOT_TIED
        ) : (
          <Choose class="layer-name leads" title={path} these={{ view: "layer", layer: path }}>
            <span class="small">{name.slice(0, end)}</span>
            <span>{name.slice(end)}</span>
          </Choose>
        )}
        {training === "frozen" && (
          <span class="tag" title="frozen">
            <Swatch fill={fillOf({ category: "weights", trainable: false })} />
            <span class="unseen">frozen</span>
          </span>
        )}
        {recomputed ? (
          <span class="tag"> recomputed</span>
        ) : (
          path !== null && isPlanned(path) && <span class="tag"> recomputed by plan</span>
        )}
      </th>
      {!brief && (
        <td class="type" title={type ?? ""}>
          {type ?? ""}
        </td>
      )}
      {columns.map(({ cell }) => cell(of))}
    </tr>
  );
}

interface LayerTableProps {
  groups: readonly LayerGroup[];
  all: LayerGroup;
  totals: LayerGroup;
  /** Whether a bar stands for most of the columns. */
  brief: boolean;
  explain: Explain;
  isPlanned: (path: string) => boolean;
}

export function LayerTable(props: LayerTableProps) {
  const { groups, all, totals, brief, explain, isPlanned } = props;
  const store = useStore();
  const unit = useUnit();
  const { layer: chosen, category: selected } = useChoices();
  const phase = store.phase.value;
  const lines = useMemo(
    () =>
      groups.flatMap((group): Line[] => [
        ...(group.title === null ? [] : [{ kind: "group" as const, group }]),
        ...group.layers.map((layer) => ({ kind: "layer" as const, layer })),
      ]),
    [groups],
  );
  const names = useMemo(() => namesOf(all.layers.flatMap(({ path }) => path ?? [])), [all]);
  const scroll = useScrollWindow(lines.length);
  useEffect(() => {
    if (chosen !== null)
      scroll.reveal(lines.findIndex((line) => line.kind === "layer" && line.layer.path === chosen));
  }, [chosen, lines]);
  const columns = useMemo(() => {
    const sizes = lines.map((line) => (line.kind === "group" ? line.group : line.layer).total);
    const longest = sizes.reduce((most, size) => Math.max(most, size), 1);
    return (brief ? briefColumns : allColumns)({ all, unit, longest, phase, selected, explain });
  }, [all, unit, lines, brief, phase, selected, explain]);
  const shared = { brief, columns };
  return (
    <LongTable
      label="Layers"
      testid="layers"
      class={`layers layer-table${brief ? " brief" : ""}`}
      lines={lines}
      scroll={scroll}
      head={
        <thead>
          <tr>
            <SortButton of="path" label="layer" hint="Sort by name" />
            {!brief && <SortButton of="type" hint="Sort by type" />}
            {columns.map(({ head }) => head)}
          </tr>
        </thead>
      }
      row={(line, index) =>
        line.kind === "group" ? (
          <GroupRow
            key={`group ${line.group.title ?? ""}`}
            kind="subtotal"
            of={line.group}
            {...shared}
          />
        ) : (
          <LayerRow
            key={line.layer.path ?? `none ${index}`}
            of={line.layer}
            name={names.get(line.layer.path ?? "") ?? ""}
            isPlanned={isPlanned}
            {...shared}
          />
        )
      }
      foot={
        <tfoot>
          <GroupRow kind="totals" of={totals} {...shared} />
        </tfoot>
      }
    />
  );
}

/** A and B side by side: by category, and by layer with the largest change first. */

import {
  signedFigure,
  unitOf,
  plural,
  formatCount,
  formatFigure,
  formatKnown,
} from "../../lib/bytes";
import { categoryLabel, WORDS } from "../../model/categories";
import {
  deltaKey,
  deltaLabel,
  deltaMeaning,
  matchCounts,
  foldDeltas,
  type LayerDelta,
  type GroupDelta,
} from "../../model/compare";
import { NOT_TIED, distinctNames } from "../../model/run";
import { useCategoryRow, useChoices } from "../shared/context";
import { Choose } from "../shared/controls";
import {
  Bytes,
  InUnit,
  useExact,
  useUnit,
  useUnitName,
  FigureTable,
  Heads,
  Panel,
  FoldedRows,
  SizeCell,
  VersusRow,
  TableHead,
} from "../shared/figures";
import { tipOf } from "../shared/tips";

const SHOWN = 60;

function Signed({ of }: { of: number }) {
  const [unit, exact] = [useUnit(), useExact()];
  const magnitude = Math.abs(of);
  return <>{signedFigure(of, exact ? formatCount(magnitude) : formatFigure(magnitude, unit))}</>;
}

const totalTip = (bytes: number | null, side: "A" | "B"): string =>
  bytes === null ? `no such layer in ${side}` : tipOf(bytes, `total of all categories in ${side}`);

const pathOf = ({ from, to }: LayerDelta): string | null => (from ?? to)?.path ?? null;

function Row({ one, name }: { one: LayerDelta; name: string }) {
  const { from, to, match, delta, main } = one;
  const renamed =
    match === "type and shape" ? `in B: ${to?.path ?? ""}` : match === "path" ? "" : match;
  const [a, b] = [from?.total ?? null, to?.total ?? null];
  return (
    <tr
      data-layer={pathOf(one) ?? ""}
      data-from={a ?? ""}
      data-to={b ?? ""}
      data-delta={delta}
      data-match={match}
    >
      <th scope="row" title={pathOf(one) ?? NOT_TIED}>
        {name}
        {renamed !== "" && <span class="tag"> {renamed}</span>}
      </th>
      <td>{(from ?? to)?.type ?? ""}</td>
      <SizeCell bytes={a} tip={totalTip(a, "A")} none="" />
      <SizeCell bytes={b} tip={totalTip(b, "B")} none="" />
      <td class="number" data-tip={tipOf(delta, "B − A: total of all categories")}>
        <Signed of={delta} />
      </td>
      <td class="shape">
        {main && (
          <>
            {`${categoryLabel(main.category)} `}
            <Signed of={main.delta} />
          </>
        )}
      </td>
    </tr>
  );
}

function LayerRows({ shown }: { shown: readonly LayerDelta[] }) {
  const names = distinctNames(shown.map((one) => pathOf(one) ?? NOT_TIED));
  const first = `A, ${useUnitName()}`;
  return (
    <table class="layers" data-testid="deltas">
      <TableHead
        names={["layer", "type", first, "B", "B − A", "main category"]}
        numbers={[first, "B", "B − A"]}
      />
      <tbody>
        {shown.map((one, index) => (
          <Row key={`${one.match}${pathOf(one) ?? ""}`} one={one} name={names[index] ?? ""} />
        ))}
      </tbody>
    </table>
  );
}

export function CompareTable({ deltas }: { deltas: readonly LayerDelta[] }) {
  const { all } = useChoices();
  const counts = matchCounts(deltas);
  const largest = Math.max(...deltas.flatMap(({ from, to }) => [from?.total ?? 0, to?.total ?? 0]));
  const changed = deltas.filter(({ delta, match }) => delta !== 0 || match !== "path");
  const shown = all ? deltas : changed.slice(0, SHOWN);
  const said = [
    `${plural(counts.path, "layer")} matched by path`,
    ...(counts["type and shape"] > 0 ? [`${counts["type and shape"]} by type and shape`] : []),
    ...(["only in A", "only in B"] as const).flatMap((match) =>
      counts[match] > 0 ? [`${counts[match]} ${match}`] : [],
    ),
    `${changed.length} differ`,
  ];
  return (
    <section class="deltas" aria-label="Layers with their changes">
      <h2>
        Layers <span class="small">{said.join(" · ")}</span>
      </h2>
      <div class="layer-scroll" tabIndex={0} role="region" aria-label="Layers of A and B">
        <InUnit value={unitOf(Math.max(largest, 0))}>
          <LayerRows shown={shown} />
        </InUnit>
      </div>
      {shown.length < deltas.length && (
        <Choose class="quiet" these={{ all: true }}>
          Show all {deltas.length} rows
        </Choose>
      )}
    </section>
  );
}

const versusTip = (from: number | null, to: number | null, ...lines: string[]): string =>
  [`A ${formatKnown(from)}, B ${formatKnown(to)}`, ...lines].join("\n");

interface RowProps {
  one: GroupDelta;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden: boolean;
}

function CategoryDelta({ one, events, hidden }: RowProps) {
  const { group, from, to } = one;
  const tip = versusTip(from, to, deltaMeaning(one), "at the measured peak of each step");
  return (
    <VersusRow
      {...{ group, from, to, tip, events, hidden }}
      name={deltaKey(one)}
      label={deltaLabel(one)}
    />
  );
}

interface CategoriesProps {
  deltas: readonly GroupDelta[];
  a: number | null;
  b: number | null;
}

function Peaks({ a, b }: Omit<CategoriesProps, "deltas">) {
  const { label, meaning, source } = WORDS.peak_bytes;
  return (
    <tr
      class="strong"
      data-figure="peak_bytes"
      data-from={a ?? ""}
      data-to={b ?? ""}
      data-tip={versusTip(a, b, meaning, source)}
    >
      <th scope="row">{label}</th>
      <SizeCell bytes={a} />
      <SizeCell bytes={b} />
    </tr>
  );
}

/** The bytes of A and B; the waterfall beside it has the changes. */
export function Categories({ deltas, a, b }: CategoriesProps) {
  const ofCategory = useCategoryRow();
  // In the order of the waterfall.
  const { shown, folded } = foldDeltas(deltas);
  const small = deltas.filter((one) => !shown.includes(one));
  return (
    <Panel label="Categories of A and B" title="Categories" unit={unitOf(Math.max(a ?? 0, b ?? 0))}>
      <FigureTable kind="versus" testid="versus">
        <thead>
          <tr>
            <td />
            <Heads names={["A", "B"]} />
          </tr>
        </thead>
        <tbody>
          <FoldedRows
            columns={3}
            sums={
              folded && (
                <>
                  <td class="number">
                    <Bytes of={folded.from} />
                  </td>
                  <td class="number">
                    <Bytes of={folded.to} />
                  </td>
                </>
              )
            }
            rows={[...shown, ...small].map((one) => {
              const key = deltaKey(one);
              const events = ofCategory(key, one.group.category);
              const row = (hidden: boolean) => (
                <CategoryDelta key={key} {...{ one, events, hidden }} />
              );
              return { key, quiet: !shown.includes(one), chosen: events.chosen, row };
            })}
          />
        </tbody>
        <tbody class="totals">
          <Peaks a={a} b={b} />
        </tbody>
      </FigureTable>
    </Panel>
  );
}

/** A and B side by side: by category, and by layer with the largest change first. */

import { signedFigure, unitOf, plural, formatBytes, type Unit } from "../../lib/bytes";
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
import { useStore, useCategoryRow } from "../shared/context";
import {
  useFigureText,
  FigureTable,
  Heads,
  Panel,
  FoldedRows,
  SizeCell,
  VersusRow,
} from "../shared/figures";
import { tipOf } from "../shared/tips";

const SHOWN = 60;

function useSigned(unit: Unit): (bytes: number) => string {
  const text = useFigureText(unit);
  return (bytes) => signedFigure(bytes, text(Math.abs(bytes)));
}

const totalTip = (bytes: number | null, side: "A" | "B"): string =>
  bytes === null ? `no such layer in ${side}` : tipOf(bytes, `total of all categories in ${side}`);

function Row({ one, name, unit }: { one: LayerDelta; name: string; unit: Unit }) {
  const { from, to, match, delta, main } = one;
  const signed = useSigned(unit);
  const renamed =
    match === "type and shape" ? `in B: ${to?.path ?? ""}` : match === "path" ? "" : match;
  return (
    <tr
      data-layer={(from ?? to)?.path ?? ""}
      data-from={from?.total ?? ""}
      data-to={to?.total ?? ""}
      data-delta={delta}
      data-match={match}
    >
      <th scope="row" title={(from ?? to)?.path ?? NOT_TIED}>
        {name}
        {renamed !== "" && <span class="tag"> {renamed}</span>}
      </th>
      <td>{(from ?? to)?.type ?? ""}</td>
      <SizeCell
        bytes={from?.total ?? null}
        unit={unit}
        tip={totalTip(from?.total ?? null, "A")}
        none=""
      />
      <SizeCell
        bytes={to?.total ?? null}
        unit={unit}
        tip={totalTip(to?.total ?? null, "B")}
        none=""
      />
      <td class="number" data-tip={tipOf(delta, "B − A: total of all categories")}>
        {signed(delta)}
      </td>
      <td class="shape">{main && `${categoryLabel(main.category)} ${signed(main.delta)}`}</td>
    </tr>
  );
}

export function CompareTable({ deltas }: { deltas: readonly LayerDelta[] }) {
  const store = useStore();
  const { all, exact } = store.choices.value;
  const counts = matchCounts(deltas);
  const unit = unitOf(
    Math.max(...deltas.map(({ from, to }) => Math.max(from?.total ?? 0, to?.total ?? 0)), 0),
  );
  const changed = deltas.filter(({ delta, match }) => delta !== 0 || match !== "path");
  const shown = all ? deltas : changed.slice(0, SHOWN);
  const names = distinctNames(shown.map(({ from, to }) => (from ?? to)?.path ?? NOT_TIED));
  const first = `A, ${exact ? "B" : unit}`;
  const said = [
    `${plural(counts.path, "layer")} matched by path`,
    ...(counts["type and shape"] > 0 ? [`${counts["type and shape"]} by type and shape`] : []),
    ...(counts["only in A"] > 0 ? [`${counts["only in A"]} only in A`] : []),
    ...(counts["only in B"] > 0 ? [`${counts["only in B"]} only in B`] : []),
    `${changed.length} differ`,
  ];
  return (
    <section class="deltas" aria-label="Layers with their changes">
      <h2>
        Layers <span class="small">{said.join(" · ")}</span>
      </h2>
      <div class="layer-scroll" tabIndex={0} role="region" aria-label="Layers of A and B">
        <table class="layers" data-testid="deltas">
          <thead>
            <tr>
              <Heads
                names={["layer", "type", first, "B", "B − A", "main category"]}
                numbers={[first, "B", "B − A"]}
              />
            </tr>
          </thead>
          <tbody>
            {shown.map((one, index) => (
              <Row
                key={`${one.match}${(one.from ?? one.to)?.path ?? ""}`}
                one={one}
                name={names[index] ?? ""}
                unit={unit}
              />
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < deltas.length && (
        <button type="button" class="quiet" onClick={() => store.choose({ all: true })}>
          Show all {deltas.length} rows
        </button>
      )}
    </section>
  );
}

const versusTip = (from: number | null, to: number | null, ...lines: string[]): string =>
  [
    `A ${from === null ? "unknown" : formatBytes(from)}, B ${to === null ? "unknown" : formatBytes(to)}`,
    ...lines,
  ].join("\n");

interface CategoriesProps {
  deltas: readonly GroupDelta[];
  a: number | null;
  b: number | null;
  hover: (key: string | null) => void;
}

interface RowProps {
  one: GroupDelta;
  unit: Unit;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden: boolean;
}

function CategoryDelta({ one, unit, events, hidden }: RowProps) {
  const signed = useSigned(unit);
  const { group, from, to, delta } = one;
  const tip = versusTip(from, to, deltaMeaning(one), "at the measured peak of each step");
  return (
    <VersusRow
      group={group}
      name={deltaKey(one)}
      label={deltaLabel(one)}
      from={from}
      to={to}
      unit={unit}
      tip={tip}
      events={events}
      hidden={hidden}
    >
      <td class="number">{signed(delta)}</td>
    </VersusRow>
  );
}

function Peaks({ a, b, unit }: { a: number | null; b: number | null; unit: Unit }) {
  const signed = useSigned(unit);
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
      <SizeCell bytes={a} unit={unit} />
      <SizeCell bytes={b} unit={unit} />
      <td class="number">{a === null || b === null ? "–" : signed(b - a)}</td>
    </tr>
  );
}

export function Categories({ deltas, a, b, hover }: CategoriesProps) {
  const ofCategory = useCategoryRow(hover);
  const unit = unitOf(Math.max(a ?? 0, b ?? 0));
  const [text, signed] = [useFigureText(unit), useSigned(unit)];
  // In the order of the waterfall.
  const { shown, folded } = foldDeltas(deltas);
  const small = deltas.filter((one) => !shown.includes(one));
  return (
    <Panel label="Categories of A and B" title="Categories" unit={unit}>
      <FigureTable kind="versus" testid="versus">
        <thead>
          <tr>
            <td />
            <Heads names={["A", "B", "change"]} />
          </tr>
        </thead>
        <tbody>
          <FoldedRows
            columns={4}
            sums={
              folded && (
                <>
                  <td class="number">{text(folded.from)}</td>
                  <td class="number">{text(folded.to)}</td>
                  <td class="number">{signed(folded.delta)}</td>
                </>
              )
            }
            rows={[...shown, ...small].map((one) => {
              const key = deltaKey(one);
              const events = ofCategory(key, one.group.category);
              const row = (hidden: boolean) => (
                <CategoryDelta key={key} one={one} unit={unit} events={events} hidden={hidden} />
              );
              return { key, quiet: !shown.includes(one), chosen: events.chosen, row };
            })}
          />
        </tbody>
        <tbody class="totals">
          <Peaks a={a} b={b} unit={unit} />
        </tbody>
      </FigureTable>
    </Panel>
  );
}

/** Layers of A and B with their deltas, the largest change first. */

import { signedFigure, unitOf, plural, type Unit } from "../../lib/bytes";
import { categoryLabel } from "../../model/categories";
import { matchCounts, type LayerDelta } from "../../model/compare";
import { NOT_TIED, distinctNames } from "../../model/run";
import { useStore } from "../shared/context";
import { useFigureText } from "../shared/figures";
import { tipOf } from "../shared/tips";
import { SizeCell } from "../shared/versus";

const SHOWN = 60;

/** How differences in a column are written. */
export function useSigned(unit: Unit): (bytes: number) => string {
  const text = useFigureText(unit);
  return (bytes) => signedFigure(bytes, text(Math.abs(bytes)));
}

const totalTip = (bytes: number | null, side: "A" | "B"): string =>
  bytes === null ? `no such layer in ${side}` : tipOf(bytes, `total of all categories in ${side}`);

function Row({ one, name, unit }: { one: LayerDelta; name: string; unit: Unit }) {
  const { from, to, match, delta, main } = one;
  const signed = useSigned(unit);
  const renamed = match === "type and shape" ? `in B: ${to?.path ?? ""}` : match === "path" ? "" : match;
  return (
    <tr data-layer={(from ?? to)?.path ?? ""} data-from={from?.total ?? ""} data-to={to?.total ?? ""} data-delta={delta} data-match={match}>
      <th scope="row" title={(from ?? to)?.path ?? NOT_TIED}>
        {name}
        {renamed !== "" && <span class="tag"> {renamed}</span>}
      </th>
      <td>{(from ?? to)?.type ?? ""}</td>
      <SizeCell bytes={from?.total ?? null} unit={unit} tip={totalTip(from?.total ?? null, "A")} none="" />
      <SizeCell bytes={to?.total ?? null} unit={unit} tip={totalTip(to?.total ?? null, "B")} none="" />
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
  const unit = unitOf(Math.max(...deltas.map(({ from, to }) => Math.max(from?.total ?? 0, to?.total ?? 0)), 0));
  const changed = deltas.filter(({ delta, match }) => delta !== 0 || match !== "path");
  const shown = all ? deltas : changed.slice(0, SHOWN);
  const names = distinctNames(shown.map(({ from, to }) => (from ?? to)?.path ?? NOT_TIED));
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
              <th scope="col">layer</th>
              <th scope="col">type</th>
              <th scope="col" class="number">
                A, {exact ? "B" : unit}
              </th>
              <th scope="col" class="number">
                B
              </th>
              <th scope="col" class="number">
                B − A
              </th>
              <th scope="col">main category</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one, index) => (
              <Row key={`${one.match}${(one.from ?? one.to)?.path ?? ""}`} one={one} name={names[index] ?? ""} unit={unit} />
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

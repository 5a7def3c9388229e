/** The largest layers at a traced step, each linked to its page. */

import { useEffect } from "preact/hooks";

import { later } from "../../lib/activity";
import { formatExact, type Unit } from "../../lib/bytes";
import { measuredAt, provenance, type Overview, type SnapshotRef } from "../../model/overview";
import { distinctNames } from "../../model/run";
import { SIZE_MEANINGS, layerSizes, rankedLayers, sizesOfPhase, type LayerSizes, type Snapshot } from "../../model/snapshot";
import { NOTHING } from "../../state/resource";
import { useStore } from "./context";
import { useFetched } from "./fetched";
import { FigureTable, useFigureText } from "./figures";

const SHOWN = 2;

/** A layer's name that links to its page. */
function LayerLink({ layer, name }: { layer: string; name: string }) {
  const store = useStore();
  return (
    <button type="button" class="leads" onClick={() => store.choose({ view: "layer", layer })}>
      {name}
    </button>
  );
}

const snapshotOf = (overview: Overview, row: number): SnapshotRef | null => {
  const source = provenance(overview, row);
  return source.kind === "layer table" ? null : source.snapshot;
};

const sizesOf = (snapshot: Snapshot): Map<string | null, LayerSizes> => layerSizes(snapshot.ledger, snapshot.saved_for_backward);
const NO_SIZES: LayerSizes = { persistent: 0, saved: 0, total: 0 };

interface RowProps {
  layer: string;
  name: string;
  /** Null while they load. */
  sizes: LayerSizes | null;
  columns: readonly (keyof LayerSizes)[];
  unit: Unit;
  source: string;
}

/** A layer with the same sizes as in the table of layers. */
function LayerSizesRow({ layer, name, sizes, columns, unit, source }: RowProps) {
  const text = useFigureText(unit);
  const lines = columns.map((column) => `${column}: ${sizes === null ? "unknown" : formatExact(sizes[column])}, ${SIZE_MEANINGS[column]}`);
  return (
    <tr data-layer={layer} data-tip={[layer, ...lines, source].join("\n")}>
      <th scope="row">
        <span class="label">
          <LayerLink layer={layer} name={name} />
        </span>
      </th>
      {columns.map((column) => (
        <td key={column} class="figure" data-figure={`${column}:${layer}`} data-bytes={sizes?.[column] ?? ""}>
          {sizes === null ? "–" : sizes[column] === 0 ? "" : text(sizes[column])}
        </td>
      ))}
    </tr>
  );
}

const SizesHead = ({ columns }: Pick<RowProps, "columns">) => (
  <tr>
    <td />
    {columns.map((column) => (
      <th key={column} scope="col" title={SIZE_MEANINGS[column]}>
        {column}
      </th>
    ))}
  </tr>
);

interface LargestLayersProps {
  overview: Overview;
  row: number;
  /** The selected step, which ranks the layers: their order does not change under the pointer. */
  selected: { overview: Overview; row: number };
  unit: Unit;
}

/** The largest layers at the selected step, with their bytes in the snapshot that the row's breakdown comes from. */
export function LargestLayers({ overview, row, selected, unit }: LargestLayersProps) {
  const store = useStore();
  const [ref, ranking] = [snapshotOf(overview, row), snapshotOf(selected.overview, selected.row)];
  const { snapshots } = store.fetched;
  const { value: ranked } = useFetched(snapshots, store.stepOf(ranking));
  const shown = store.stepOf(ref);
  useEffect(() => {
    if (shown === null) return undefined;
    // Wait: the pointer passes over many steps.
    return later(100, () => snapshots.want(...shown));
  }, [ref]);
  // Steps before the first traced one keep the same height.
  if (overview.snapshots.length === 0) return null;
  const { value, error } = shown === null ? NOTHING : snapshots.read(...shown);
  const largest = ranked ? rankedLayers(sizesOf(ranked), SHOWN) : [];
  const sizes = value && sizesOf(value);
  const names = distinctNames(largest);
  const columns = sizesOfPhase(overview.phase);
  return (
    <section class="owners">
      <h3>
        <button type="button" class="all-layers" title="Show all layers" onClick={() => store.choose({ view: "layers" })}>
          Largest layers
        </button>
      </h3>
      <FigureTable kind="sizes">
        <thead>
          <SizesHead columns={columns} />
        </thead>
        <tbody>
          {Array.from({ length: SHOWN }, (_, index) => {
            const layer = largest[index];
            if (layer === undefined || ref === null)
              return (
                <tr key={index} class="blank">
                  <th colSpan={1 + columns.length} title={error ?? ""}>
                    {index > 0 ? "" : (error ?? (ref === null ? "no step traced yet" : ranked ? "This trace names no layer." : ""))}
                  </th>
                </tr>
              );
            return (
              <LayerSizesRow
                key={layer}
                layer={layer}
                name={names[index] ?? ""}
                sizes={sizes === null ? null : (sizes.get(layer) ?? NO_SIZES)}
                columns={columns}
                unit={unit}
                source={measuredAt(ref)}
              />
            );
          })}
        </tbody>
      </FigureTable>
    </section>
  );
}

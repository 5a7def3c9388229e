/** The largest layers at a traced step, each linked to its page. */

import { useEffect } from "preact/hooks";

import { later } from "../../lib/activity";
import type { Unit } from "../../lib/bytes";
import { distinctNames } from "../../model/names";
import { measuredAt, modeLabel, provenance, type Overview, type SnapshotRef } from "../../model/overview";
import { persistentSaved, persistentSavedWords, rankedLayers, type Snapshot } from "../../model/snapshot";
import { NOTHING } from "../../state/resource";
import { useStore } from "./context";
import { useFetched } from "./fetched";
import { Figure, FigureTable } from "./figures";

const SHOWN = 6;

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

const sizesOf = (snapshot: Snapshot): Map<string | null, number> => persistentSaved(snapshot.ledger, snapshot.saved_for_backward);

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
  const words = persistentSavedWords(overview.phase);
  return (
    <section class="owners">
      <h3>
        Largest layers
        {ref !== null && (
          <button type="button" class="more" onClick={() => store.choose({ view: "layers" })}>
            Show all layers
          </button>
        )}
      </h3>
      <p class="small one-line" title={words.meaning}>
        {ref === null
          ? "no step traced yet"
          : `${words.label}, step ${ref.step}, ${ref.at_failure ? "at the failed allocation" : modeLabel(ref.mode)}`}
      </p>
      <FigureTable>
        <tbody>
          {Array.from({ length: SHOWN }, (_, index) => {
            const layer = largest[index];
            if (layer === undefined || ref === null)
              return (
                <tr key={index} class="blank">
                  <th title={error ?? ""}>{index > 0 ? "" : (error ?? (ranked ? "This trace names no layer." : ""))}</th>
                </tr>
              );
            return (
              <Figure
                key={layer}
                name={`layer:${layer}`}
                label={<LayerLink layer={layer} name={names[index] ?? ""} />}
                hint={`${layer}: ${words.meaning}`}
                source={measuredAt(ref)}
                bytes={sizes === null ? null : (sizes.get(layer) ?? 0)}
                unit={unit}
              />
            );
          })}
        </tbody>
      </FigureTable>
    </section>
  );
}

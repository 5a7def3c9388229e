/** The largest layers at a traced step, each linked to its page. */

import { useEffect } from "preact/hooks";

import { later } from "../../lib/activity";
import type { Unit } from "../../lib/bytes";
import { distinctNames } from "../../model/names";
import { modeLabel, provenance, type Overview } from "../../model/overview";
import { owners } from "../../model/snapshot";
import { NOTHING } from "../../state/resource";
import { useStore } from "./context";
import { Figure, FigureTable } from "./figures";

const SHOWN = 6;

/** A layer's name that links to its page. */
function LayerLink({ layer, step, name }: { layer: string | null; step: number; name: string }) {
  const store = useStore();
  return (
    <button type="button" class="leads" onClick={() => store.choose({ view: "layer", layer, step })}>
      {name}
    </button>
  );
}

/** The largest layers in the snapshot that the row's breakdown comes from. */
export function LargestLayers({ overview, row, unit }: { overview: Overview; row: number; unit: Unit }) {
  const store = useStore();
  const source = provenance(overview, row);
  const ref = source.kind === "layer table" ? null : source.snapshot;
  useEffect(() => {
    if (ref === null) return undefined;
    // Wait: the pointer passes over many steps.
    return later(100, () => store.wantSnapshot(ref));
  }, [ref]);
  // Steps before the first traced one keep the same height.
  if (overview.snapshots.length === 0) return null;
  const { value, error } = ref === null ? NOTHING : store.snapshotOf(ref);
  const total = value?.in_use_bytes ?? 0;
  const largest = value
    ? owners(value.ledger)
        .filter(({ layer }) => layer !== null)
        .slice(0, SHOWN)
    : [];
  const names = distinctNames(largest.map(({ layer }) => layer ?? ""));
  return (
    <section class="owners">
      <h3>
        Largest layers
        <span class="small one-line" title={ref === null ? "" : `Traced at step ${ref.step}, ${modeLabel(ref.mode)}`}>
          {ref === null ? "no step traced yet" : `step ${ref.step}, ${modeLabel(ref.mode)}`}
        </span>
        {ref !== null && (
          <button type="button" class="more" onClick={() => store.choose({ view: "layers", step: ref.step })}>
            Show all layers
          </button>
        )}
      </h3>
      <FigureTable>
        <tbody>
          {Array.from({ length: SHOWN }, (_, index) => {
            const owner = largest[index];
            if (!owner || ref === null)
              return (
                <tr key={index} class="blank">
                  <th title={error ?? ""}>{index > 0 ? "" : (error ?? (value ? "This trace names no layer." : ""))}</th>
                </tr>
              );
            return (
              <Figure
                key={owner.layer}
                name={`layer:${owner.layer ?? ""}`}
                label={<LayerLink layer={owner.layer} step={ref.step} name={names[index] ?? ""} />}
                hint={`${owner.layer ?? ""}: total of all categories`}
                source={`traced at the peak of step ${ref.step}`}
                bytes={owner.bytes}
                share={total ? owner.bytes / total : null}
                unit={unit}
              />
            );
          })}
        </tbody>
      </FigureTable>
    </section>
  );
}

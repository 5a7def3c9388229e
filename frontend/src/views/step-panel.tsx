/** Everything known about one step. Its rows are always the same, so it never jumps while the cursor moves. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

import { later } from "../lib/activity";
import { unitOf, type Unit } from "../lib/bytes";
import { formatDuration, formatWallTime } from "../lib/format";
import { categoryMeaning, groupKey, groupLabel } from "../model/categories";
import { distinctNames } from "../model/names";
import { at, composition, modeLabel, provenance, provenanceSentence, type Overview } from "../model/overview";
import { owners } from "../model/snapshot";
import { fillOf } from "../theme/palette";
import { schemeOf, useStore } from "./context";
import { startOf } from "./frame";
import { Figure, FigureTable, UnitButton, WordFigure } from "./figures";
import { useCategoryRow, type Focus } from "./focus";

export interface PanelProps {
  overview: Overview;
  row: number;
  focus: Focus;
  /** Category under the pointer in the chart. */
  pointed: string | null;
  hover: (key: string | null) => void;
  children?: ComponentChildren;
}

export function PanelHead({ overview, row, unit }: { overview: Overview; row: number; unit: Unit }) {
  const store = useStore();
  const pinned = store.choices.value.step;
  const step = at(overview.step, row);
  const epoch = at(overview.epoch, row);
  const time = at(overview.wall_time, row);
  const hovering = store.cursor.value !== null;
  const why = hovering ? "" : pinned !== null ? "pinned" : "highest peak";
  return (
    <header class="panel-head">
      <h2 data-testid="step" data-step={step ?? ""}>
        Step {step ?? "?"}
        <span class="why">
          {why}
          {pinned !== null && !hovering && (
            <button
              type="button"
              class="unpin"
              aria-label="Unpin the step"
              title="Unpin (Escape)"
              onClick={() => store.choose({ step: null })}
            >
              ×
            </button>
          )}
        </span>
        <UnitButton unit={unit} />
      </h2>
      <p class="small">
        {overview.phase}
        {epoch !== null && ` · epoch ${epoch}`}
        {time !== null && (
          <span title={formatWallTime(time)}> · {formatDuration(time - startOf(store.whole.value.value ?? overview))} after start</span>
        )}
      </p>
    </header>
  );
}

/** Where a step's composition was learned, for its figures' tooltips. */
export const learnedOf = (overview: Overview, row: number): string =>
  `Step ${at(overview.step, row) ?? "?"}. ${provenanceSentence(provenance(overview, row))}`;

export function Provenance({ overview, row }: { overview: Overview; row: number }) {
  const store = useStore();
  const source = provenance(overview, row);
  const traced = source.kind === "layer table" ? null : source.snapshot.step;
  return (
    <p class={`provenance ${source.kind.replace(" ", "-")}`} data-testid="provenance" data-kind={source.kind}>
      {provenanceSentence(source)}
      {traced !== null && (
        <button
          type="button"
          class="inside-link"
          title={`What was live inside step ${traced}, from moment to moment`}
          onClick={() => store.choose({ view: "step", step: traced })}
        >
          Inside step {traced}
        </button>
      )}
    </p>
  );
}

function Composition({ overview, row, focus, pointed, hover, unit }: PanelProps & { unit: Unit }) {
  const store = useStore();
  const ofCategory = useCategoryRow(hover);
  const learned = learnedOf(overview, row);
  const parts = composition(overview, row);
  return (
    <tbody>
      {[...parts].reverse().map(({ group, bytes, share }) => {
        const key = groupKey(group);
        return (
          <Figure
            key={key}
            name={key}
            label={groupLabel(group)}
            hint={categoryMeaning(group.category)}
            learned={learned}
            bytes={bytes}
            share={share}
            unit={unit}
            fill={fillOf(group.category, group.trainable, schemeOf(store))}
            focused={(pointed ?? focus.hovered) === key}
            {...ofCategory(key, group.category)}
          />
        );
      })}
    </tbody>
  );
}

const MORE = ["host_resident_bytes", "driver_process_bytes", "driver_used_bytes", "driver_total_bytes"] as const;

/** Peak, capacity and headroom; then what else was measured at the step, where it was. */
export function Totals({ overview, row, unit }: { overview: Overview; row: number; unit: Unit }) {
  const peak = at(overview.peak_bytes, row);
  const capacity = at(overview.capacity_bytes, row);
  const common = { unit, when: `step ${at(overview.step, row) ?? "?"}` };
  const share = capacity && peak !== null ? peak / capacity : null;
  const headroom = peak === null || capacity === null ? null : capacity - peak;
  const ended = { ...common, when: `when ${common.when} ended` };
  return (
    <tbody class="totals">
      <WordFigure {...common} strong word="peak_bytes" bytes={peak} share={share} />
      <WordFigure {...ended} word="in_use_bytes" label="in use at its end" bytes={at(overview.in_use_bytes, row)} />
      <WordFigure {...common} word="capacity_bytes" bytes={capacity} />
      <WordFigure {...common} word="headroom" bytes={headroom} />
      {MORE.filter((name) => overview[name].some((value) => !Number.isNaN(value))).map((name) => (
        <WordFigure key={name} {...common} word={name} bytes={at(overview[name], row)} />
      ))}
    </tbody>
  );
}

const OWNERS = 6;

/** A layer's name that leads to its own page. */
function Leads({ layer, step, name }: { layer: string | null; step: number; name: string }) {
  const store = useStore();
  return (
    <button type="button" class="leads" onClick={() => store.choose({ view: "layer", layer, step })}>
      {name}
    </button>
  );
}

/** The layers that hold most at the snapshot that the row's composition is from. */
export function Owners({ overview, row, unit }: { overview: Overview; row: number; unit: Unit }) {
  const store = useStore();
  const source = provenance(overview, row);
  const ref = source.kind === "layer table" ? null : source.snapshot;
  useEffect(() => {
    if (ref === null) return undefined;
    // Not for every step that the pointer passes over.
    return later(100, () => store.wantSnapshot(ref));
  }, [ref]);
  if (ref === null) return null;
  const { value, error } = store.snapshotOf(ref);
  const total = value?.in_use_bytes ?? 0;
  const largest = value
    ? owners(value.ledger)
        .filter(({ layer }) => layer !== null)
        .slice(0, OWNERS)
    : [];
  const names = distinctNames(largest.map(({ layer }) => layer ?? ""));
  return (
    <section class="owners">
      <h3>
        Largest layers{" "}
        <span class="small">
          traced at step {ref.step}, {modeLabel(ref.mode)}
        </span>
        <button type="button" class="more" onClick={() => store.choose({ view: "layers", step: ref.step })}>
          all layers
        </button>
      </h3>
      {error && <p class="small warn">{error}</p>}
      <FigureTable>
        <tbody>
          {Array.from({ length: OWNERS }, (_, index) => {
            const owner = largest[index];
            if (!owner)
              return (
                <tr key={index} class="blank">
                  <th>{value && index === 0 ? "No layer is named in this trace." : "\u00a0"}</th>
                </tr>
              );
            return (
              <Figure
                key={owner.layer}
                name={`layer:${owner.layer ?? ""}`}
                label={<Leads layer={owner.layer} step={ref.step} name={names[index] ?? ""} />}
                hint={`${owner.layer ?? ""}: all categories together`}
                learned={`traced at the peak of step ${ref.step}`}
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

/** One unit for the whole panel: that of the highest figure of the run, so that it does not change from step to step. */
export function panelUnit(overview: Overview): Unit {
  return unitOf(overview.peak_bytes.reduce((most, value) => (value > most ? value : most), 0));
}

export function StepPanel(props: PanelProps) {
  const { overview, row } = props;
  const unit = panelUnit(overview);
  return (
    <aside class="panel" aria-label="Figures of one step">
      <PanelHead overview={overview} row={row} unit={unit} />
      <Provenance overview={overview} row={row} />
      <FigureTable testid="composition">
        <Composition {...props} unit={unit} />
        <Totals overview={overview} row={row} unit={unit} />
      </FigureTable>
      {props.children}
      <Owners overview={overview} row={row} unit={unit} />
    </aside>
  );
}

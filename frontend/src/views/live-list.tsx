/** Everything that is live at one moment of a step, largest first. */

import { useMemo } from "preact/hooks";

import { formatBytes, formatCount, formatExact, type Unit } from "../lib/bytes";
import { categoryLabel } from "../model/categories";
import { distinctNames } from "../model/names";
import { at } from "../model/overview";
import { groupOfOwner, liveRows, ownerOfRow, rowFacts, rowsBySize, sinceText, untilText, whatText, type Timeline } from "../model/timeline";
import { matcher } from "../state/selection";
import { fillOf } from "../theme/palette";
import { schemeOf, useStore } from "./context";
import { Swatch, useExact, useFigureText } from "./figures";
import { useScrollWindow } from "./scroll-window";
import { tipOf } from "./tips";

const ROW_HEIGHT = 28;

/** The end of an operation's name, which tells most. */
const tail = (name: string): string => name.split("/").slice(-2).join("/");

function Size({ bytes, unit }: { bytes: number | null; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" aria-label={bytes === null ? "not known" : formatExact(bytes)}>
      {bytes === null ? "–" : bytes !== 0 && text(bytes)}
    </td>
  );
}

function Row({ timeline, row, name, unit }: { timeline: Timeline; row: number; name: string; unit: Unit }) {
  const store = useStore();
  const owner = ownerOfRow(timeline, row);
  const group = groupOfOwner(owner);
  const { layer: chosen, category } = store.choices.value;
  const what = whatText(timeline, row);
  const bytes = timeline.bytes[row] ?? 0;
  const selected = owner.layer !== null && owner.layer === chosen;
  return (
    <tr class={selected ? "selected" : ""} data-row={row} data-bytes={bytes} data-tip={tipOf(bytes, ...rowFacts(timeline, row))}>
      <th scope="row">
        {owner.layer === null ? (
          "no layer"
        ) : (
          <button
            type="button"
            class="layer-name"
            aria-pressed={selected}
            onClick={() => store.choose({ layer: selected ? null : owner.layer })}
          >
            {name}
          </button>
        )}
      </th>
      <td>
        <button
          type="button"
          aria-pressed={category === group.category}
          onClick={() => store.choose({ category: category === group.category ? null : group.category })}
        >
          <Swatch fill={fillOf(group.category, group.trainable, schemeOf(store))} />
          {categoryLabel(group.category)}
          {group.trainable === false && <span class="tag"> frozen</span>}
        </button>
      </td>
      <td class="shape">{tail(what)}</td>
      <Size bytes={bytes} unit={unit} />
      <Size bytes={at(timeline.rounding_bytes, row)} unit={unit} />
      <td class="number">{sinceText(timeline, row)}</td>
      <td class="number">{untilText(timeline, row)}</td>
    </tr>
  );
}

const HEADS: readonly (readonly [string, string, boolean])[] = [
  ["layer", "the layer whose it is", false],
  ["category", "what it is for", false],
  ["operation", "what asked for it", false],
  ["bytes", "allocated bytes", true],
  ["rounding", "how many of them were not asked for", true],
  ["since", "when it was allocated, from the step's start; before: it was there already", true],
  ["until", "when it is freed; after: it stays", true],
];

/** Rows that are live and that the search and the selection leave, largest first. */
function useLive(timeline: Timeline, moment: number, search: string) {
  const { layer, category } = useStore().choices.value;
  const ordered = useMemo(() => rowsBySize(timeline), [timeline]);
  const live = useMemo(() => liveRows(timeline, ordered, moment), [timeline, ordered, moment]);
  const match = useMemo(() => matcher(search), [search]);
  const shown = useMemo(
    () =>
      live.filter((row) => {
        const owner = ownerOfRow(timeline, row);
        if (layer !== null && owner.layer !== layer) return false;
        if (category !== null && owner.category !== category) return false;
        return match.test(`${owner.layer ?? "no layer"} ${categoryLabel(owner.category)} ${whatText(timeline, row)}`);
      }),
    [timeline, live, match, layer, category],
  );
  return { live, shown, fault: match.fault };
}

const sumOf = (timeline: Timeline, rows: readonly number[]): number => rows.reduce((sum, row) => sum + (timeline.bytes[row] ?? 0), 0);

function Chosen() {
  const store = useStore();
  const { layer, category } = store.choices.value;
  if (layer === null && category === null) return null;
  return (
    <button type="button" class="quiet" onClick={() => store.choose({ layer: null, category: null })}>
      Only the selected{layer !== null ? " layer" : ""}
      {layer !== null && category !== null ? " and" : ""}
      {category !== null ? " category" : ""} ×
    </button>
  );
}

export function LiveList({ timeline, moment, unit, where }: { timeline: Timeline; moment: number; unit: Unit; where: string }) {
  const store = useStore();
  const { search } = store.choices.value;
  const exact = useExact();
  const { live, shown, fault } = useLive(timeline, moment, search);
  const layers = useMemo(() => [...new Set(timeline.owners.flatMap(({ layer }) => layer ?? []))], [timeline]);
  const names = useMemo(() => new Map(distinctNames(layers).map((name, index) => [layers[index] ?? "", name])), [layers]);
  const { host, first, last, onScroll } = useScrollWindow(shown.length, ROW_HEIGHT);
  const filler = (rows: number) => rows > 0 && <tr aria-hidden="true" style={{ height: `${rows * ROW_HEIGHT}px` }} />;
  return (
    <section class="live" aria-label="What is live">
      <div class="layers-bar">
        <h3>Live {where}, largest first</h3>
        <input
          type="search"
          class="filter"
          placeholder="Search (regex)"
          aria-label="Search what is live by regular expression"
          value={search}
          onInput={(event) => store.choose({ search: event.currentTarget.value })}
        />
        <Chosen />
        <span class="small" data-testid="live-count">
          {fault ?? `${formatCount(shown.length)} of ${formatCount(live.length)}, ${formatBytes(sumOf(timeline, shown))}`}
        </span>
      </div>
      <div class="layer-scroll" ref={host} onScroll={onScroll} tabIndex={0} role="region" aria-label="What is live, row by row">
        <table class={exact ? "layers exact" : "layers"} data-testid="live" aria-rowcount={shown.length + 1}>
          <thead>
            <tr>
              {HEADS.map(([name, hint, isNumber]) => (
                <th key={name} scope="col" class={isNumber ? "number" : ""} title={hint}>
                  {name === "bytes" && !exact ? unit : name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {filler(first)}
            {shown.slice(first, last).map((row) => (
              <Row key={row} timeline={timeline} row={row} name={names.get(ownerOfRow(timeline, row).layer ?? "") ?? ""} unit={unit} />
            ))}
            {filler(shown.length - last)}
          </tbody>
        </table>
      </div>
    </section>
  );
}

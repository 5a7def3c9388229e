/** The live allocations at one moment of a step, largest first. */

import { useMemo } from "preact/hooks";

import { formatBytes, formatCount, formatExact, type Unit } from "../../lib/bytes";
import { categoryLabel } from "../../model/categories";
import { NOT_TIED, distinctNames } from "../../model/names";
import { groupOfOwner, liveRows, ownerOfRow, rowsBySize, type Timeline } from "../../model/timeline";
import { rowFacts, sinceText, untilText, whatText } from "../../model/timeline-text";
import { matcher } from "../../state/selection";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { Swatch, useExact, useFigureText } from "../shared/figures";
import { useScrollWindow } from "../shared/scroll-window";
import { Search } from "../shared/search";
import { tipOf } from "../shared/tips";

const ROW_HEIGHT = 28;

/** The last two parts of an operation's name. */
const tail = (name: string): string => name.split("/").slice(-2).join("/");

function Size({ bytes, unit }: { bytes: number | null; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" aria-label={bytes === null ? "unknown" : formatExact(bytes)}>
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
          NOT_TIED
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
      <td class="number">{sinceText(timeline, row)}</td>
      <td class="number">{untilText(timeline, row)}</td>
    </tr>
  );
}

const HEADS: readonly (readonly [string, string, boolean])[] = [
  ["layer", "the owning layer", false],
  ["category", "the category of the memory", false],
  ["operation", "the operation that requested it", false],
  ["bytes", "requested bytes; rounding is a row of its own", true],
  ["allocated", "time of allocation from the start of the step; before: allocated before the step", true],
  ["freed", "time of deallocation; after: live after the step", true],
];

/** Live rows that match the search and the selection, largest first. */
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
        return match.test(`${owner.layer ?? NOT_TIED} ${categoryLabel(owner.category)} ${whatText(timeline, row)}`);
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
      Clear {layer !== null ? "layer" : ""}
      {layer !== null && category !== null ? " and " : ""}
      {category !== null ? "category" : ""} ×
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
    <section class="live" aria-label="Live allocations">
      <h3 class="one-line">Live allocations {where}, largest first</h3>
      <div class="layers-bar">
        <Search label="Search live allocations by regular expression" placeholder="Search (regex)" />
        <Chosen />
        <span class="small one-line" data-testid="live-count">
          {fault ?? `${formatCount(shown.length)} of ${formatCount(live.length)}, ${formatBytes(sumOf(timeline, shown))}`}
        </span>
      </div>
      <div class="layer-scroll" ref={host} onScroll={onScroll} tabIndex={0} role="region" aria-label="Table of live allocations">
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

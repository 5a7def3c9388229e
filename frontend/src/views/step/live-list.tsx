/**
 * The live allocations at one moment of a step: sorted, searched, and a way to select a tensor by
 * the keyboard.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { formatBytes, formatCount, formatExact } from "../../lib/bytes";
import { categoryLabel, groupOfOwner } from "../../model/categories";
import { NOT_TIED, namesOf, tail } from "../../model/run";
import { sizesText } from "../../model/snapshot";
import {
  lineOfRow,
  liveRows,
  ownerOfRow,
  shapeOfRow,
  type Timeline,
  shapeText,
  tensorStops,
  whatText,
  rowFacts,
  sinceText,
  untilText,
} from "../../model/timeline";
import {
  survivors,
  LARGEST_FIRST,
  LIVE_KEYS,
  ascends,
  nextSort,
  sortedRows,
  type LiveKey,
  type LiveSort,
} from "../../model/timeline-order";
import { matcher } from "../../state/runs";
import { fillOf } from "../../theme/palette";
import { useStore, useCategoryRow, useChoices } from "../shared/context";
import { Search, Choose } from "../shared/controls";
import { useExact, Swatch, rowClasses, Bytes, useUnit } from "../shared/figures";
import { LongTable, SortedColumn, arrowKeys, useScrollWindow } from "../shared/long-table";
import { tipOf } from "../shared/tips";

function LayerCell({ layer, name }: { layer: string | null; name: string }) {
  const store = useStore();
  const selected = layer !== null && layer === store.choices.value.layer;
  return (
    <th scope="row">
      {layer === null ? (
        NOT_TIED
      ) : (
        <Choose
          class="layer-name"
          aria-pressed={selected}
          these={{ layer: selected ? null : layer }}
        >
          {name}
        </Choose>
      )}
    </th>
  );
}

function CategoryCell({ timeline, row }: { timeline: Timeline; row: number }) {
  const group = groupOfOwner(ownerOfRow(timeline, row));
  const { chosen, onChoose } = useCategoryRow()(group.category, group.category);
  return (
    <td>
      <button type="button" aria-pressed={chosen} onClick={onChoose}>
        <Swatch fill={fillOf(group)} />
        {categoryLabel(group.category)}
        {group.trainable === false && <span class="tag"> frozen</span>}
      </button>
    </td>
  );
}

interface LiveRowProps {
  timeline: Timeline;
  row: number;
  name: string;
  selected: boolean;
  select: () => void;
}

/**
 * A click outside of the layer and the category selects the tensor; the operation is a button for
 * the keyboard.
 */
function LiveRow({ timeline, row, name, selected, select }: LiveRowProps) {
  const { layer: chosen } = useChoices();
  const { layer } = ownerOfRow(timeline, row);
  const bytes = timeline.bytes[row] ?? 0;
  const shape = shapeOfRow(timeline, row);
  const line = lineOfRow(timeline, row);
  const onClick = (event: MouseEvent) => {
    if (event.target instanceof Element && !event.target.closest("button")) select();
  };
  return (
    <tr
      class={rowClasses({ selected: layer !== null && layer === chosen, "tensor-row": selected })}
      aria-current={selected ? "true" : undefined}
      data-row={row}
      data-bytes={bytes}
      data-tensor={timeline.tensor[row]}
      data-tip={tipOf(bytes, ...rowFacts(timeline, row))}
      onClick={onClick}
    >
      <LayerCell layer={layer} name={name} />
      <CategoryCell timeline={timeline} row={row} />
      <td class="shape">
        <button type="button" class="operation" aria-pressed={selected} onClick={select}>
          {tail(whatText(timeline, row), 2)}
        </button>
      </td>
      <td class="shape">{shape && sizesText(shape.shape)}</td>
      <td class="shape">{shape?.dtype}</td>
      <td class="number" aria-label={formatExact(bytes)}>
        {bytes !== 0 && <Bytes of={bytes} />}
      </td>
      <td class="number">{sinceText(timeline, row)}</td>
      <td class="number">{untilText(timeline, row)}</td>
      <td class="shape cut-start">
        <bdi>{line}</bdi>
      </td>
    </tr>
  );
}

const HINTS: Record<LiveKey, string> = {
  layer: "the owning layer",
  category: "the category of the memory",
  operation: "the operation that requested it",
  shape: "shape of the tensor; empty if unknown",
  dtype: "dtype of the tensor; empty if unknown",
  bytes: "requested bytes; rounding is a row of its own",
  allocated: "time of allocation from the start of the step; before: allocated before the step",
  freed: "time of deallocation; after: live after the step",
  line: "the Python line that called the layer or operation; empty if unknown",
};

const NUMBERS: readonly LiveKey[] = ["bytes", "allocated", "freed"];

function searched(timeline: Timeline, row: number): string {
  const { layer, category } = ownerOfRow(timeline, row);
  const shape = shapeOfRow(timeline, row);
  const known = [lineOfRow(timeline, row), shape && shapeText(shape)].filter(Boolean);
  return [...known, layer ?? NOT_TIED, categoryLabel(category), whatText(timeline, row)].join(" ");
}

function useLive(timeline: Timeline, moment: number, search: string, sort: LiveSort) {
  const { layer, category, survived } = useChoices();
  const ordered = useMemo(() => sortedRows(timeline, sort), [timeline, sort]);
  const live = useMemo(
    () => (survived ? survivors(timeline, ordered) : liveRows(timeline, ordered, moment)),
    [timeline, ordered, survived ? null : moment],
  );
  const match = useMemo(() => matcher(search), [search]);
  const shown = useMemo(() => {
    if (layer === null && category === null && search === "") return live;
    return live.filter((row) => {
      const owner = ownerOfRow(timeline, row);
      if (layer !== null && owner.layer !== layer) return false;
      if (category !== null && owner.category !== category) return false;
      return match.test(searched(timeline, row));
    });
  }, [timeline, live, match, layer, category]);
  return { live, shown, fault: match.fault };
}

const sumOf = (timeline: Timeline, rows: readonly number[]): number =>
  rows.reduce((sum, row) => sum + (timeline.bytes[row] ?? 0), 0);

function Survived() {
  const { survived } = useChoices();
  return (
    <Choose
      class="quiet survived"
      aria-pressed={survived}
      title="Only tensors that this step allocated and did not free, without new values of variables: a leak is among them"
      these={{ survived: !survived }}
    >
      Survived this step
    </Choose>
  );
}

function Chosen() {
  const { layer, category } = useChoices();
  if (layer === null && category === null) return null;
  return (
    <Choose class="quiet" these={{ layer: null, category: null }}>
      Clear {layer !== null ? "layer" : ""}
      {layer !== null && category !== null ? " and " : ""}
      {category !== null ? "category" : ""} ×
    </Choose>
  );
}

function Head({ sort, choose }: { sort: LiveSort; choose: (key: LiveKey) => void }) {
  const unit = useUnit();
  const exact = useExact();
  return (
    <thead>
      <tr>
        {LIVE_KEYS.map((key) => (
          <SortedColumn
            key={key}
            name={key}
            label={key === "bytes" && !exact ? unit : key}
            hint={`Sort by ${key}: ${HINTS[key]}`}
            isNumber={NUMBERS.includes(key)}
            sorted={key === sort.key}
            ascending={ascends(sort)}
            choose={() => choose(key)}
          />
        ))}
      </tr>
    </thead>
  );
}

/**
 * Selects the tensor of a row or clears it; brings a tensor that was selected elsewhere into sight.
 */
function useSelection(
  timeline: Timeline,
  shown: readonly number[],
  reveal: (index: number) => void,
): (row: number) => void {
  const store = useStore();
  const { tensor } = useChoices();
  const own = useRef(false);
  useEffect(() => {
    // A row that was clicked is in sight and stays where it is.
    if (tensor !== null && !own.current)
      reveal(shown.findIndex((row) => timeline.tensor[row] === tensor));
    own.current = false;
  }, [tensor]);
  return (row) => {
    own.current = true;
    const number = timeline.tensor[row] ?? null;
    store.choose({ tensor: number === tensor ? null : number });
  };
}

export function LiveList({
  timeline,
  moment,
  where,
}: {
  timeline: Timeline;
  moment: number;
  where: string;
}) {
  const store = useStore();
  const { search, survived, tensor } = useChoices();
  const exact = useExact();
  const [sort, setSort] = useState(LARGEST_FIRST);
  const { live, shown, fault } = useLive(timeline, moment, search, sort);
  const layers = useMemo(
    () => [...new Set(timeline.owners.flatMap(({ layer }) => layer ?? []))],
    [timeline],
  );
  const names = useMemo(() => namesOf(layers), [layers]);
  const scroll = useScrollWindow(shown.length);
  const arrows = arrowKeys(
    scroll.host,
    // The rows of one tensor are one stop.
    () => ({ all: tensorStops(timeline, shown), selected: store.choices.peek().tensor }),
    (next) => store.choose({ tensor: next }),
  );
  const select = useSelection(timeline, shown, scroll.reveal);
  return (
    <section class="live" aria-label="Live allocations">
      <h3 class="one-line">
        {`${survived ? "Allocations that survived this step" : `Live allocations ${where}`}${sort === LARGEST_FIRST ? ", largest first" : ""}`}
      </h3>
      <div class="layers-bar">
        <Search
          label="Search live allocations by regular expression"
          placeholder="Search (regex)"
        />
        <Survived />
        <Chosen />
        <span class="small one-line" data-testid="live-count">
          {fault ??
            `${formatCount(shown.length)} of ${formatCount(live.length)}, ${formatBytes(sumOf(timeline, shown))}`}
        </span>
      </div>
      <LongTable
        label="Table of live allocations"
        testid="live"
        class={exact ? "layers exact" : "layers"}
        lines={shown}
        scroll={scroll}
        onKeyDown={arrows}
        head={<Head sort={sort} choose={(key) => setSort(nextSort(sort, key))} />}
        row={(row) => (
          <LiveRow
            key={row}
            timeline={timeline}
            row={row}
            name={names.get(ownerOfRow(timeline, row).layer ?? "") ?? ""}
            selected={tensor !== null && timeline.tensor[row] === tensor}
            select={() => select(row)}
          />
        )}
      />
    </section>
  );
}

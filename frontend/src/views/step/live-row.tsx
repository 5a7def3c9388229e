/** A row of the list of live allocations. */

import { formatExact, type Unit } from "../../lib/bytes";
import { categoryLabel } from "../../model/categories";
import { NOT_TIED, tail } from "../../model/run";
import { sizesText } from "../../model/snapshot";
import { groupOfOwner, lineOfRow, ownerOfRow, shapeOfRow, type Timeline } from "../../model/timeline";
import { rowFacts, sinceText, untilText, whatText } from "../../model/timeline-text";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { Swatch, rowClasses, useFigureText } from "../shared/figures";
import { useCategoryRow } from "../shared/focus";
import { tipOf } from "../shared/tips";

function Size({ bytes, unit }: { bytes: number; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" aria-label={formatExact(bytes)}>
      {bytes !== 0 && text(bytes)}
    </td>
  );
}

function LayerCell({ layer, name }: { layer: string | null; name: string }) {
  const store = useStore();
  const selected = layer !== null && layer === store.choices.value.layer;
  return (
    <th scope="row">
      {layer === null ? (
        NOT_TIED
      ) : (
        <button type="button" class="layer-name" aria-pressed={selected} onClick={() => store.choose({ layer: selected ? null : layer })}>
          {name}
        </button>
      )}
    </th>
  );
}

function CategoryCell({ timeline, row }: { timeline: Timeline; row: number }) {
  const store = useStore();
  const group = groupOfOwner(ownerOfRow(timeline, row));
  const { chosen, onChoose } = useCategoryRow()(group.category, group.category);
  return (
    <td>
      <button type="button" aria-pressed={chosen} onClick={onChoose}>
        <Swatch fill={fillOf(group.category, group.trainable, schemeOf(store))} />
        {categoryLabel(group.category)}
        {group.trainable === false && <span class="tag"> frozen</span>}
      </button>
    </td>
  );
}

interface LiveRowProps {
  timeline: Timeline;
  row: number;
  /** Short name of the layer. */
  name: string;
  unit: Unit;
  /** Of the row's tensor. */
  selected: boolean;
  select: () => void;
}

/** A click outside of the layer and the category selects the tensor; the operation is a button for the keyboard. */
export function LiveRow({ timeline, row, name, unit, selected, select }: LiveRowProps) {
  const { layer: chosen } = useStore().choices.value;
  const { layer } = ownerOfRow(timeline, row);
  const bytes = timeline.bytes[row] ?? 0;
  const shape = shapeOfRow(timeline, row);
  const line = lineOfRow(timeline, row);
  const onClick = (event: MouseEvent): void => {
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
      <Size bytes={bytes} unit={unit} />
      <td class="number">{sinceText(timeline, row)}</td>
      <td class="number">{untilText(timeline, row)}</td>
      <td class="shape cut-start">
        <bdi>{line}</bdi>
      </td>
    </tr>
  );
}

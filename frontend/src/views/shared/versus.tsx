/** Rows of two figures side by side: A and B, measured and predicted. */

import type { ComponentChildren } from "preact";

import type { Unit } from "../../lib/bytes";
import { groupKey, groupLabel, type Group } from "../../model/categories";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "./context";
import { Swatch, rowClasses, rowEvents, useFigureText } from "./figures";
import type { useCategoryRow } from "./focus";

interface SizeCellProps {
  bytes: number | null;
  unit: Unit;
  tip?: string;
  /** Text in place of an unknown figure. */
  none?: string;
}

export function SizeCell({ bytes, unit, tip, none = "–" }: SizeCellProps) {
  const text = useFigureText(unit);
  return (
    <td class="number" data-bytes={bytes ?? ""} data-tip={tip}>
      {bytes === null ? none : text(bytes)}
    </td>
  );
}

interface VersusRowProps {
  group: Group;
  /** Null: unknown. */
  from: number | null;
  to: number;
  unit: Unit;
  tip: string;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden?: boolean;
  /** More cells. */
  children?: ComponentChildren;
}

/** A category with both its figures. */
export function VersusRow({ group, from, to, unit, tip, events, hidden, children }: VersusRowProps) {
  const scheme = schemeOf(useStore());
  return (
    <tr
      hidden={hidden}
      data-figure={groupKey(group)}
      data-from={from ?? ""}
      data-to={to}
      data-tip={tip}
      class={rowClasses({ choosable: true, zero: !from && to === 0, focused: events.chosen })}
      {...rowEvents(events)}
    >
      <th scope="row">
        <Swatch fill={fillOf(group.category, group.trainable, scheme)} />
        <span class="label">{groupLabel(group)}</span>
      </th>
      <SizeCell bytes={from} unit={unit} />
      <SizeCell bytes={to} unit={unit} />
      {children}
    </tr>
  );
}

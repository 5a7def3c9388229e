/** Rows of two figures side by side: A and B, measured and predicted. */

import type { ComponentChildren } from "preact";

import { unitOf, isMinor, type Unit } from "../../lib/bytes";
import { groupKey, groupLabel, categoryMeaning } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore, useCategoryRow } from "./context";
import { Swatch, rowClasses, rowEvents, useFigureText, FigureTable, Panel, FoldedRows } from "./figures";
import { tipOf } from "./tips";
import type { Group } from "../../schema";

export function SizeCell({ bytes, unit, tip, none = "–" }: { bytes: number | null; unit: Unit; tip?: string; none?: string }) {
  const text = useFigureText(unit);
  return (
    <td class="number" data-bytes={bytes ?? ""} data-tip={tip}>
      {bytes === null ? none : text(bytes)}
    </td>
  );
}

interface VersusRowProps {
  group: Group;
  from: number | null;
  to: number;
  unit: Unit;
  tip: string;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden?: boolean;
  children?: ComponentChildren;
}

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

interface MeasuredPanelProps {
  label: string;
  testid: string;
  /** What the prediction is for: the head of its column. */
  name: string;
  /** Null: no such step was traced. */
  measured: { step: number; in_use_bytes: number } | null;
  predicted: number | null;
  deltas: readonly GroupDelta[];
  hover?: (key: string | null) => void;
}

type RowsProps = Pick<MeasuredPanelProps, "measured" | "deltas" | "hover"> & { whole: number; unit: Unit };

function Rows({ measured, deltas, hover, whole, unit }: RowsProps) {
  const ofCategory = useCategoryRow(hover);
  const text = useFigureText(unit);
  const rows = [...deltas].reverse().map((delta) => ({ ...delta, events: ofCategory(groupKey(delta.group), delta.group.category) }));
  const isSmall = ({ from, to }: GroupDelta): boolean => isMinor(Math.max(from, to), whole);
  const small = rows.filter((one) => isSmall(one) && !one.events.chosen);
  const sumOf = (side: "from" | "to"): number => small.reduce((sum, one) => sum + one[side], 0);
  return (
    <FoldedRows
      columns={3}
      sums={
        <>
          <td class="number">{measured ? text(sumOf("from")) : "–"}</td>
          <td class="number">{text(sumOf("to"))}</td>
        </>
      }
      rows={rows.map((one) => {
        const { group, from, to, events } = one;
        const key = groupKey(group);
        const tip = [...(measured ? [tipOf(from, "measured")] : []), tipOf(to, "predicted"), categoryMeaning(group.category)].join("\n");
        const row = (hidden: boolean) => <VersusRow {...{ key, hidden, group, to, unit, tip, events }} from={measured ? from : null} />;
        return { key, quiet: isSmall(one), chosen: events.chosen, row };
      })}
    />
  );
}

export function MeasuredPanel({ label, testid, name, measured, predicted, deltas, hover }: MeasuredPanelProps) {
  const peak = measured?.in_use_bytes ?? null;
  const whole = Math.max(peak ?? 0, predicted ?? 0);
  const unit = unitOf(whole);
  return (
    <Panel label={label} title="By category" unit={unit}>
      <FigureTable kind="versus" testid={testid}>
        <thead>
          <tr>
            <td />
            <th scope="col" title={measured ? `peak of step ${measured.step}` : "no such step was traced"}>
              measured
            </th>
            <th scope="col" title="predicted peak">
              {name}
            </th>
          </tr>
        </thead>
        <tbody>
          <Rows {...{ measured, deltas, whole, unit }} {...(hover && { hover })} />
        </tbody>
        <tbody class="totals">
          <tr class="strong" data-figure="total" data-from={peak ?? ""} data-to={predicted ?? ""}>
            <th scope="row">peak</th>
            <SizeCell bytes={peak} unit={unit} />
            <SizeCell bytes={predicted} unit={unit} />
          </tr>
        </tbody>
      </FigureTable>
    </Panel>
  );
}

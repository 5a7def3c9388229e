/** A and B by category, side by side. */

import { formatExact, unitOf, type Unit } from "../../lib/bytes";
import { categoryMeaning, groupKey } from "../../model/categories";
import { foldDeltas, type GroupDelta } from "../../model/compare";
import { WORDS } from "../../model/words";
import { useSigned } from "./compare-table";
import { FigureTable, UnitButton, useFigureText } from "../shared/figures";
import { useCategoryRow } from "../shared/focus";
import { FoldedRows } from "../shared/folded-rows";
import { SizeCell, VersusRow } from "../shared/versus";

/** Both figures to the byte, then their meaning. */
const versusTip = (from: number | null, to: number | null, ...lines: string[]): string =>
  [`A ${from === null ? "unknown" : formatExact(from)}, B ${to === null ? "unknown" : formatExact(to)}`, ...lines].join("\n");

interface CategoriesProps {
  deltas: readonly GroupDelta[];
  /** The measured peaks. */
  a: number | null;
  b: number | null;
  hover: (key: string | null) => void;
}

interface RowProps {
  one: GroupDelta;
  unit: Unit;
  events: ReturnType<ReturnType<typeof useCategoryRow>>;
  hidden: boolean;
}

function Row({ one, unit, events, hidden }: RowProps) {
  const signed = useSigned(unit);
  const { group, from, to, delta } = one;
  const tip = versusTip(from, to, categoryMeaning(group.category), "at the measured peak of each step");
  return (
    <VersusRow group={group} from={from} to={to} unit={unit} tip={tip} events={events} hidden={hidden}>
      <td class="number">{signed(delta)}</td>
    </VersusRow>
  );
}

function Peaks({ a, b, unit }: { a: number | null; b: number | null; unit: Unit }) {
  const signed = useSigned(unit);
  const { label, meaning, source } = WORDS.peak_bytes;
  return (
    <tr class="strong" data-figure="peak_bytes" data-from={a ?? ""} data-to={b ?? ""} data-tip={versusTip(a, b, meaning, source)}>
      <th scope="row">{label}</th>
      <SizeCell bytes={a} unit={unit} />
      <SizeCell bytes={b} unit={unit} />
      <td class="number">{a === null || b === null ? "–" : signed(b - a)}</td>
    </tr>
  );
}

export function Categories({ deltas, a, b, hover }: CategoriesProps) {
  const ofCategory = useCategoryRow(hover);
  const unit = unitOf(Math.max(a ?? 0, b ?? 0));
  const [text, signed] = [useFigureText(unit), useSigned(unit)];
  // In the order of the waterfall.
  const { shown, folded } = foldDeltas(deltas);
  const small = deltas.filter((one) => !shown.includes(one));
  return (
    <aside class="panel" aria-label="Categories of A and B">
      <header class="panel-head">
        <h2>
          Categories
          <UnitButton unit={unit} />
        </h2>
      </header>
      <FigureTable kind="versus" testid="versus">
        <thead>
          <tr>
            <td />
            <th scope="col">A</th>
            <th scope="col">B</th>
            <th scope="col">change</th>
          </tr>
        </thead>
        <tbody>
          <FoldedRows
            columns={4}
            sums={
              folded && (
                <>
                  <td class="number">{text(folded.from)}</td>
                  <td class="number">{text(folded.to)}</td>
                  <td class="number">{signed(folded.delta)}</td>
                </>
              )
            }
            rows={[...shown, ...small].map((one) => {
              const key = groupKey(one.group);
              const events = ofCategory(key, one.group.category);
              const row = (hidden: boolean) => <Row key={key} one={one} unit={unit} events={events} hidden={hidden} />;
              return { key, quiet: !shown.includes(one), chosen: events.chosen, row };
            })}
          />
        </tbody>
        <tbody class="totals">
          <Peaks a={a} b={b} unit={unit} />
        </tbody>
      </FigureTable>
    </aside>
  );
}

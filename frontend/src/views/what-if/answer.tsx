/** The answer: the verdict, its figures, and the pictures. */

import { useMemo } from "preact/hooks";

import { formatBytes, unbroken } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import {
  METHOD_NAMES,
  METHOD_WORDS,
  assumptionsOf,
  categoriesOf,
  largestText,
  ledgerTable,
  rangeText,
  recordedText,
  replayText,
  totalOf,
  verdictOf,
  type WhatIf,
} from "../../model/what-if";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { Fact } from "../shared/fact";
import { useFocus } from "../shared/focus";
import { Known } from "../shared/known";
import { MeasuredPanel } from "../shared/measured-panel";
import { NoticeList } from "../shared/states";
import { tipOf } from "../shared/tips";
import { PeakBars, PeakBarsDrawing } from "./bars-drawing";
import { PeakCurve } from "./peak-curve";

/** Size of the saved bars in pixels. */
const SAVED = { width: 560, height: 420 };

function Facts({ answer }: { answer: WhatIf }) {
  const { peak_bytes: peak, low_bytes: low, high_bytes: high, largest_batch_size: largest, capacity_bytes: capacity } = answer;
  if (peak === null) return null;
  return (
    <dl class="prediction">
      <Fact
        name="peak_bytes"
        label="predicted peak"
        value={rangeText(low, high)}
        figure={peak}
        tip={tipOf(peak, `range: ${rangeText(low, high)}`, "of the simulated steps")}
      />
      <Fact
        name="largest_batch_size"
        label="largest batch size"
        value={largestText(answer)}
        tip={`The largest batch size that fits${capacity === null ? "" : ` into ${formatBytes(capacity)}`}`}
        figure={largest}
      />
    </dl>
  );
}

function Method({ answer }: { answer: WhatIf }) {
  const { method } = answer;
  return (
    <dl class="prediction">
      <Fact name="method" label="method" value={METHOD_NAMES[method]} note={METHOD_WORDS[method]} />
      <Fact name="reproduced" label="replay" value={replayText(answer)} />
      <Fact name="recorded" label="recorded" value={recordedText(answer)} />
    </dl>
  );
}

const Assumptions = ({ answer }: { answer: WhatIf }) => <NoticeList sentences={assumptionsOf(answer)} testid="assumptions" />;

export function Answer({ answer }: { answer: WhatIf }) {
  const scheme = schemeOf(useStore());
  const { focus, hover } = useFocus();
  const deltas = useMemo(() => categoriesOf(answer), [answer]);
  const drawn = { answer, deltas, focus, scheme };
  const isKnown = answer.peak_bytes !== null;
  useExport({
    table: () => ledgerTable(answer),
    ...(isKnown && {
      legend: () =>
        deltas.map(({ group }) => ({
          label: groupLabel(group),
          fill: fillOf(group.category, group.trainable, scheme),
          key: groupKey(group),
        })),
      drawing: () => <PeakBarsDrawing {...drawn} {...SAVED} />,
    }),
  });
  return (
    <div class="answer">
      <div class="answer-head">
        <h2 class="verdict" data-testid="verdict" data-verdict={verdictOf(answer)} aria-live="polite">
          {unbroken(answer.sentence)}
        </h2>
        <Facts answer={answer} />
        {!isKnown && <Assumptions answer={answer} />}
        <Known>
          {isKnown && <Assumptions answer={answer} />}
          <Method answer={answer} />
        </Known>
      </div>
      {isKnown && (
        <div class="body">
          <div class="picture what-if-pictures">
            <PeakBars {...drawn} />
            <PeakCurve answer={answer} />
          </div>
          <MeasuredPanel
            label="Categories, measured and predicted"
            testid="predicted"
            name="predicted"
            measured={answer.measured}
            predicted={totalOf(answer.ledger)}
            deltas={deltas}
            hover={hover}
          />
        </div>
      )}
    </div>
  );
}

/** The figures of one moment of a step, of a selected span, and all that is known of one tensor. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import {
  formatCount,
  formatMilliseconds,
  plural,
  shareOf,
  formatBytes,
  addressText,
  formatExact,
} from "../../lib/bytes";
import { maximum } from "../../lib/search";
import {
  categoryMeaning,
  categoryLabel,
  groupKey,
  groupLabel,
  groupOfOwner,
} from "../../model/categories";
import { modeLabel } from "../../model/overview";
import { tail, NOT_TIED } from "../../model/run";
import { holderOf } from "../../model/snapshot";
import {
  bandOf,
  isCompiled,
  ownerOfRow,
  type Timeline,
  bandLabel,
  bandMeaning,
  timeText,
  tensorOf,
  tensorLines,
  whatText,
  shapeText,
  sizeFormula,
  sizeText,
  atPeakText,
  lifetimeText,
  type Tensor,
} from "../../model/timeline";
import { spanStatistics, type SpanStatistics, isHeld } from "../../model/timeline-order";
import { fillOf, NO_FILL } from "../../theme/palette";
import { useStore, useCategoryRow, useFetched, useChoices } from "../shared/context";
import { Choose } from "../shared/controls";
import {
  FigureRows,
  FigureTable,
  UnitButton,
  WordFigure,
  Swatch,
  SizeCell,
  TableHead,
} from "../shared/figures";
import { Known } from "../shared/states";
import { figured, tipOf } from "../shared/tips";
import type { StepLook } from "./step-spec";

interface MomentPanelProps {
  timeline: Timeline;
  look: StepLook;
  moment: number;
  why: "hover" | "selected" | "peak";
  pointed: string | null;
}

const whenAt = (timeline: Timeline, moment: number): string =>
  `step ${timeline.step}, ${timeText(timeline, moment)} after its start`;

const sourceAtMoment = (timeline: Timeline, moment: number): string =>
  `the trace${isCompiled(timeline, moment) ? " and XLA's buffer assignment" : ""}, ${whenAt(timeline, moment)}`;

function PanelHead({ timeline, moment, why }: MomentPanelProps) {
  const band = bandOf(timeline, moment);
  return (
    <header class="panel-head">
      <h2 data-testid="moment" data-moment={moment} data-step={timeline.step}>
        {moment === timeline.peak ? "Peak" : timeText(timeline, moment)}
        <span class="why">
          {why === "selected" && (
            <>
              selected
              <Choose
                class="unpin"
                aria-label="Clear the selected moment"
                title="Clear (Escape)"
                these={{ moment: null }}
              >
                ×
              </Choose>
            </>
          )}
        </span>
        <UnitButton />
      </h2>
      <p class="small one-line">
        {moment === timeline.peak && `${timeText(timeline, moment)} · `}
        <span title={band ? bandMeaning(band.name) : ""}>
          {band ? bandLabel(band.name) : "outside the passes"}
        </span>
        {isCompiled(timeline, moment) && " · XLA buffer assignment"}
      </p>
      <p class="small one-line">
        {`after ${formatCount(timeline.event[moment] ?? 0)} of ${formatCount(timeline.events)} allocator events`}
      </p>
    </header>
  );
}

/** The parts of the stack at the moment, topmost first; a click selects the category or layer. */
function Breakdown({ timeline, look, moment, pointed }: MomentPanelProps) {
  const store = useStore();
  const { layer: selected } = useChoices();
  const ofRow = useCategoryRow();
  const ofLayer = (layer: string) => ({
    chosen: layer === selected,
    onChoose: () => store.choose({ layer: layer === selected ? null : layer }),
  });
  const total = look.layout.total[moment] ?? 0;
  const highest = useMemo(() => look.series.map(({ bytes }) => maximum(bytes)), [look.series]);
  const rows = look.series.map(({ key, group, layer, bytes }, index) => {
    const { focused, onFocus, ...events } = ofRow(key, group?.category ?? null);
    return {
      ...events,
      // Other layers together are neither chosen nor highlighted.
      ...((group ?? layer) !== null && onFocus && { onFocus }),
      ...(layer !== null && ofLayer(layer)),
      name: key,
      highest: highest[index] ?? null,
      label: look.labels[index] ?? "",
      hint: group ? categoryMeaning(group.category) : (layer ?? ""),
      source: sourceAtMoment(timeline, moment),
      bytes: bytes[moment] ?? 0,
      share: shareOf(bytes[moment] ?? 0, total),
      fill: look.fills[index] ?? NO_FILL,
      focused: pointed === null ? focused : pointed === key,
    };
  });
  return (
    <tbody>
      <FigureRows whole={timeline.in_use_bytes} rows={rows.reverse()} />
    </tbody>
  );
}

export function MomentPanel(props: MomentPanelProps) {
  const { timeline, look, moment } = props;
  return (
    <aside class="panel" aria-label="Figures of one moment">
      <PanelHead {...props} />
      <FigureTable testid="timeline-breakdown">
        <Breakdown {...props} />
        <tbody class="totals">
          <WordFigure
            strong
            word="in_use_bytes"
            when={whenAt(timeline, moment)}
            bytes={look.layout.total[moment] ?? 0}
          />
          <WordFigure
            word="peak_bytes"
            when={whenAt(timeline, timeline.peak)}
            bytes={timeline.in_use_bytes}
          />
        </tbody>
      </FigureTable>
      <p class="small">
        {`Step ${timeline.step} · ${timeline.phase} · ${modeLabel(timeline.mode)} · ${plural(timeline.allocations, "allocation")} in `}
        {formatMilliseconds(timeline.duration_ns / 1e6)}
      </p>
    </aside>
  );
}

type Span = readonly [number, number];

function Flows({ found }: { found: SpanStatistics }) {
  const row = (
    flow: SpanStatistics | SpanStatistics["groups"][number],
    key: string,
    label: ComponentChildren,
  ) => {
    const { allocated_bytes: allocated, freed_bytes: freed } = flow;
    const flows = { allocated, freed, net: allocated - freed };
    return (
      <tr key={key} data-group={key}>
        <th scope="row">{label}</th>
        {Object.entries(flows).map(([name, bytes]) => (
          <SizeCell key={name} name={name} bytes={bytes} tip={tipOf(bytes)} />
        ))}
      </tr>
    );
  };
  return (
    <table class="flows" data-testid="span-flows">
      <TableHead names={["category", "allocated", "freed", "net"]} />
      <tbody>
        {found.groups.map((flow) =>
          row(
            flow,
            groupKey(flow.group),
            <>
              <Swatch fill={fillOf(flow.group)} />
              {groupLabel(flow.group)}
            </>,
          ),
        )}
        {row(found, "total", "total")}
      </tbody>
    </table>
  );
}

function Largest({ timeline, found }: { timeline: Timeline; found: SpanStatistics }) {
  const { tensor: selected } = useChoices();
  return (
    <ol class="largest" data-testid="span-largest">
      {found.largest.map((number) => {
        const tensor = tensorOf(timeline, number);
        if (!tensor) return null;
        const { row } = tensor;
        return (
          <li key={number} data-tensor={number} data-bytes={tensor.bytes}>
            <Choose
              aria-pressed={number === selected}
              title={tensorLines(timeline, tensor).join("\n")}
              these={{ tensor: number }}
            >
              {`${formatBytes(tensor.bytes)} ${categoryLabel(ownerOfRow(timeline, row).category)}, ${tail(whatText(timeline, row), 2)}`}
            </Choose>
          </li>
        );
      })}
      {found.largest.length === 0 && <li>No tensor is allocated in this span.</li>}
    </ol>
  );
}

export function SpanPanel({
  timeline,
  total,
  span,
}: {
  timeline: Timeline;
  total: Float64Array;
  span: Span;
}) {
  const [first, last] = span;
  const found = useMemo(
    () => spanStatistics(timeline, total, span),
    [timeline, total, first, last],
  );
  return (
    <section
      class="tensor span"
      aria-label="Selected span"
      data-testid="span"
      data-first={first}
      data-last={last}
    >
      <h3>
        {`Selected span: ${timeText(timeline, first)} to ${timeText(timeline, last)}`}
        <span class="tensor-tools">
          <Choose class="quiet" disabled={first === last} these={{ span }}>
            Zoom to span
          </Choose>
          <Choose class="quiet" these={{ selection: null }}>
            Clear span
          </Choose>
        </span>
      </h3>
      <p class="small">
        <span {...figured("peak", found.peak_bytes)}>
          {`Peak ${formatBytes(found.peak_bytes)} at ${timeText(timeline, found.peak)}`}
        </span>
        {` · ${formatCount(found.allocated)} tensors allocated, ${formatCount(found.freed)} freed`}
      </p>
      <div class="span-parts">
        <Flows found={found} />
        <div>
          <h4>Largest tensors allocated in it</h4>
          <Largest timeline={timeline} found={found} />
        </div>
      </div>
    </section>
  );
}

export type TensorWhy = "pointed" | "selected" | "largest";

const TITLES: Record<TensorWhy, string> = {
  pointed: "Tensor under the pointer",
  selected: "Selected tensor",
  largest: "Largest tensor",
};

const Fact = ({
  name,
  title,
  children,
}: {
  name: string;
  title?: string | undefined;
  children: ComponentChildren;
}) => (
  <div data-fact={name}>
    <dt>{name}</dt>
    <dd title={title}>{children}</dd>
  </div>
);

function ShapeFacts({ tensor }: { tensor: Tensor }) {
  const { shape, bytes } = tensor;
  return (
    <>
      <Fact name="shape" title={shape ? shapeText(shape) : undefined}>
        {shape ? shapeText(shape) : "unknown"}
      </Fact>
      <Fact name="allocated" title="requested + rounding">
        {sizeText(bytes)}
      </Fact>
    </>
  );
}

function MoreFacts({ timeline, tensor }: { timeline: Timeline; tensor: Tensor }) {
  const { shape, requested_bytes: requested, rounding_bytes: rounding } = tensor;
  const formula = shape && sizeFormula(shape);
  const { row } = tensor;
  return (
    <>
      <Fact name="size">{formula ?? "unknown"}</Fact>
      <Fact name="requested">{sizeText(requested)}</Fact>
      <Fact name="rounding">{rounding === null ? "unknown" : formatExact(rounding)}</Fact>
      <Fact name="address">
        {tensor.address === null ? "unknown" : addressText(tensor.address)}
      </Fact>
      <Fact name="live at peak">{atPeakText(timeline, row)}</Fact>
    </>
  );
}

function OwnerFacts({ timeline, row }: { timeline: Timeline; row: number }) {
  const owner = ownerOfRow(timeline, row);
  const group = groupOfOwner(owner);
  const { chosen, onChoose } = useCategoryRow()(group.category, group.category);
  return (
    <>
      <Fact name="layer" title={owner.layer ?? NOT_TIED}>
        {owner.layer === null ? (
          NOT_TIED
        ) : (
          <Choose class="leads" these={{ view: "layer", layer: owner.layer }}>
            {owner.layer}
          </Choose>
        )}
      </Fact>
      <Fact name="category" title={categoryMeaning(group.category)}>
        <button type="button" aria-pressed={chosen} onClick={onChoose}>
          <Swatch fill={fillOf(group)} />
          {groupLabel(group)}
        </button>
      </Fact>
      <Fact name="operation" title={whatText(timeline, row)}>
        {whatText(timeline, row)}
      </Fact>
    </>
  );
}

function Holder({ timeline, tensor }: { timeline: Timeline; tensor: Tensor }) {
  const store = useStore();
  const { row } = tensor;
  const { shape } = tensor;
  const held = shape !== null && isHeld(timeline, row);
  const { value } = useFetched(
    store.fetched.snapshots,
    held ? store.stepOf(store.shownTimeline.value) : null,
  );
  const holder = held && value ? (holderOf(value.held_tensors, shape) ?? "unknown") : "–";
  return (
    <Fact name="held by" title={holder}>
      {holder}
    </Fact>
  );
}

export function TensorPanel({
  timeline,
  tensor,
  why,
}: {
  timeline: Timeline;
  tensor: Tensor | null;
  why: TensorWhy;
}) {
  const store = useStore();
  const row = tensor?.row ?? 0;
  const { tensor: selected } = useChoices();
  const zoomTo = () => {
    const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
    const margin = Math.max(Math.round((end - start) / 10), 1);
    store.choose({
      span: [Math.max(start - margin, 0), Math.min(end + margin, timeline.moments - 1)],
    });
  };
  return (
    <section
      class="tensor"
      aria-label="Tensor"
      data-testid="tensor"
      data-tensor={tensor?.number ?? ""}
      data-why={why}
    >
      <h3>
        {TITLES[why]}
        <span class="tensor-tools">
          <button type="button" class="quiet" disabled={tensor === null} onClick={zoomTo}>
            Zoom to lifetime
          </button>
          <Choose class="quiet" disabled={selected === null} these={{ tensor: null }}>
            Clear tensor
          </Choose>
        </span>
      </h3>
      {tensor === null ? (
        <p class="small">No tensor with a known owner is live at this moment.</p>
      ) : (
        <>
          <dl>
            <OwnerFacts timeline={timeline} row={row} />
            <Fact name="Python line" title={tensor.line ?? undefined}>
              {tensor.line ?? "unknown"}
            </Fact>
            <ShapeFacts tensor={tensor} />
            <Fact name="lifetime">{lifetimeText(timeline, row)}</Fact>
            <Holder timeline={timeline} tensor={tensor} />
          </dl>
          <Known>
            <dl>
              <MoreFacts timeline={timeline} tensor={tensor} />
            </dl>
          </Known>
        </>
      )}
    </section>
  );
}

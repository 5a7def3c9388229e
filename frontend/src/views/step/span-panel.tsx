/** The selected span of a step: what it allocates and frees, its peak, its largest tensors. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { formatBytes, formatCount, unitOf, type Unit } from "../../lib/bytes";
import { categoryLabel, groupKey, groupLabel } from "../../model/categories";
import { tail } from "../../model/run";
import { ownerOfRow, type Timeline } from "../../model/timeline";
import { spanStatistics, type SpanStatistics } from "../../model/timeline-order";
import { tensorOf, tensorLines, timeText, whatText } from "../../model/timeline-text";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { Swatch, useFigureText } from "../shared/figures";
import { tipOf } from "../shared/tips";

type Span = readonly [number, number];

/** A figure that shows its exact bytes on hover. */
function Bytes({ name, bytes, unit }: { name: string; bytes: number; unit: Unit }) {
  const text = useFigureText(unit);
  return (
    <td class="number" data-figure={name} data-bytes={bytes} data-tip={tipOf(bytes)}>
      {text(bytes)}
    </td>
  );
}

function Flows({ found, unit }: { found: SpanStatistics; unit: Unit }) {
  const scheme = schemeOf(useStore());
  const row = (flow: SpanStatistics | SpanStatistics["groups"][number], key: string, label: ComponentChildren) => (
    <tr key={key} data-group={key}>
      <th scope="row">{label}</th>
      <Bytes name="allocated" bytes={flow.allocated_bytes} unit={unit} />
      <Bytes name="freed" bytes={flow.freed_bytes} unit={unit} />
      <Bytes name="net" bytes={flow.allocated_bytes - flow.freed_bytes} unit={unit} />
    </tr>
  );
  return (
    <table class="flows" data-testid="span-flows">
      <thead>
        <tr>
          {["category", "allocated", "freed", "net"].map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {found.groups.map((flow) =>
          row(
            flow,
            groupKey(flow.group),
            <>
              <Swatch fill={fillOf(flow.group.category, flow.group.trainable, scheme)} />
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
  const store = useStore();
  const { tensor: selected } = store.choices.value;
  return (
    <ol class="largest" data-testid="span-largest">
      {found.largest.map((number) => {
        const tensor = tensorOf(timeline, number);
        if (!tensor) return null;
        const row = tensor.rows[0] ?? 0;
        return (
          <li key={number} data-tensor={number} data-bytes={tensor.bytes}>
            <button
              type="button"
              aria-pressed={number === selected}
              title={tensorLines(timeline, tensor).join("\n")}
              onClick={() => store.choose({ tensor: number })}
            >
              {`${formatBytes(tensor.bytes)} ${categoryLabel(ownerOfRow(timeline, row).category)}, ${tail(whatText(timeline, row), 2)}`}
            </button>
          </li>
        );
      })}
      {found.largest.length === 0 && <li>No tensor is allocated in this span.</li>}
    </ol>
  );
}

export function SpanPanel({ timeline, total, span }: { timeline: Timeline; total: Float64Array; span: Span }) {
  const store = useStore();
  const [first, last] = span;
  const unit = unitOf(timeline.in_use_bytes);
  const found = useMemo(() => spanStatistics(timeline, total, span), [timeline, total, first, last]);
  return (
    <section class="tensor span" aria-label="Selected span" data-testid="span" data-first={first} data-last={last}>
      <h3>
        {`Selected span: ${timeText(timeline, first)} to ${timeText(timeline, last)}`}
        <span class="tensor-tools">
          <button type="button" class="quiet" disabled={first === last} onClick={() => store.choose({ span })}>
            Zoom to span
          </button>
          <button type="button" class="quiet" onClick={() => store.choose({ selection: null })}>
            Clear span
          </button>
        </span>
      </h3>
      <p class="small">
        <span data-figure="peak" data-bytes={found.peak_bytes} data-tip={tipOf(found.peak_bytes)}>
          {`Peak ${formatBytes(found.peak_bytes)} at ${timeText(timeline, found.peak)}`}
        </span>
        {` · ${formatCount(found.allocated)} tensors allocated, ${formatCount(found.freed)} freed`}
      </p>
      <div class="span-parts">
        <Flows found={found} unit={unit} />
        <div>
          <h4>Largest tensors allocated in it</h4>
          <Largest timeline={timeline} found={found} />
        </div>
      </div>
    </section>
  );
}

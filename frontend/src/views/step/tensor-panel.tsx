/** All that is known of one tensor: the one under the pointer, the selected one, or the largest of the shown moment. */

import type { ComponentChildren } from "preact";

import { addressText, formatExact } from "../../lib/bytes";
import { categoryMeaning, groupLabel, groupOfOwner } from "../../model/categories";
import { NOT_TIED } from "../../model/run";
import { holderOf } from "../../model/snapshot";
import { ownerOfRow, type Timeline } from "../../model/timeline";
import { isHeld } from "../../model/timeline-order";
import { shapeText, sizeFormula, sizeText, atPeakText, lifetimeText, whatText, type Tensor } from "../../model/timeline-text";
import { fillOf } from "../../theme/palette";
import { schemeOf, useStore, useFetched, useCategoryRow } from "../shared/context";
import { Swatch } from "../shared/figures";
import { Known } from "../shared/states";

export type TensorWhy = "pointed" | "selected" | "largest";

const TITLES: Record<TensorWhy, string> = {
  pointed: "Tensor under the pointer",
  selected: "Selected tensor",
  largest: "Largest tensor",
};

function Fact({ name, title, children }: { name: string; title?: string | undefined; children: ComponentChildren }) {
  return (
    <div data-fact={name}>
      <dt>{name}</dt>
      <dd title={title}>{children}</dd>
    </div>
  );
}

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
  const row = tensor.rows[0] ?? 0;
  return (
    <>
      <Fact name="size" title={formula ?? undefined}>
        {formula ?? "unknown"}
      </Fact>
      <Fact name="requested">{sizeText(requested)}</Fact>
      <Fact name="rounding">{rounding === null ? "unknown" : formatExact(rounding)}</Fact>
      <Fact name="address">{tensor.address === null ? "unknown" : addressText(tensor.address)}</Fact>
      <Fact name="live at peak">{atPeakText(timeline, row)}</Fact>
    </>
  );
}

function OwnerFacts({ timeline, row }: { timeline: Timeline; row: number }) {
  const store = useStore();
  const owner = ownerOfRow(timeline, row);
  const group = groupOfOwner(owner);
  const { chosen, onChoose } = useCategoryRow()(group.category, group.category);
  return (
    <>
      <Fact name="layer" title={owner.layer ?? NOT_TIED}>
        {owner.layer === null ? (
          NOT_TIED
        ) : (
          <button type="button" class="leads" onClick={() => store.choose({ view: "layer", layer: owner.layer })}>
            {owner.layer}
          </button>
        )}
      </Fact>
      <Fact name="category" title={categoryMeaning(group.category)}>
        <button type="button" aria-pressed={chosen} onClick={onChoose}>
          <Swatch fill={fillOf(group.category, group.trainable, schemeOf(store))} />
          {groupLabel(group)}
        </button>
      </Fact>
      <Fact name="operation" title={whatText(timeline, row)}>
        {whatText(timeline, row)}
      </Fact>
    </>
  );
}

/** What in Python keeps a tensor alive after the step. */
function Holder({ timeline, tensor }: { timeline: Timeline; tensor: Tensor }) {
  const store = useStore();
  const row = tensor.rows[0] ?? 0;
  const { shape } = tensor;
  const held = shape !== null && isHeld(timeline, row);
  const { value } = useFetched(store.fetched.snapshots, held ? store.stepOf(store.shownTimeline.value) : null);
  const holder = held && value ? (holderOf(value.held_tensors, shape) ?? "unknown") : "–";
  return (
    <Fact name="held by" title={holder}>
      {holder}
    </Fact>
  );
}

export function TensorPanel({ timeline, tensor, why }: { timeline: Timeline; tensor: Tensor | null; why: TensorWhy }) {
  const store = useStore();
  const row = tensor?.rows[0] ?? 0;
  const { tensor: selected } = store.choices.value;
  const zoomTo = (): void => {
    const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
    const margin = Math.max(Math.round((end - start) / 10), 1);
    store.choose({ span: [Math.max(start - margin, 0), Math.min(end + margin, timeline.moments - 1)] });
  };
  return (
    <section class="tensor" aria-label="Tensor" data-testid="tensor" data-tensor={tensor?.number ?? ""} data-why={why}>
      <h3>
        {TITLES[why]}
        <span class="tensor-tools">
          <button type="button" class="quiet" disabled={tensor === null} onClick={zoomTo}>
            Zoom to lifetime
          </button>
          <button type="button" class="quiet" disabled={selected === null} onClick={() => store.choose({ tensor: null })}>
            Clear tensor
          </button>
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

/** Where the card's memory is, as one bar from the card to the categories. */

import { useLayoutEffect } from "preact/hooks";

import { formatBytes } from "../lib/bytes";
import { formatShare, unbroken } from "../lib/format";
import { cardSentence, inPool, segmentKey, segmentLabel, segmentMeaning, type Card, type Segment } from "../model/card";
import { fillOf, INKS, type Fill, type Scheme } from "../theme/palette";
import { schemeOf, useStore } from "./context";
import { Swatch } from "./figures";
import { tipOf } from "./tips";

function segmentFill(segment: Segment, scheme: Scheme): Fill {
  const ink = INKS[scheme];
  switch (segment.part) {
    case "in_use":
      return fillOf(segment.category ?? "unattributed", segment.trainable, scheme);
    case "free_largest":
    case "pool_free":
      return { colour: ink.idle, pattern: "plain" };
    case "free_rest":
      return { colour: ink.idle, pattern: "diagonal" };
    case "process_other":
      return { colour: ink.faint, pattern: "plain" };
    case "others":
      return { colour: ink.faint, pattern: "diagonal" };
    default:
      return { colour: ink.background, pattern: "plain" };
  }
}

function Bar({ card }: { card: Card }) {
  const scheme = schemeOf(useStore());
  const total = card.segments.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <>
      <div class="card-bar" aria-hidden="true">
        {card.segments.map((segment) => {
          const fill = segmentFill(segment, scheme);
          const tip = tipOf(segment.bytes, segmentLabel(segment));
          const style = { "--fill": fill.colour, width: `${(segment.bytes / total) * 100}%` };
          return (
            <i key={segmentKey(segment)} class={`fill ${fill.pattern} ${inPool(segment) ? "pool" : ""}`} style={style} data-tip={tip} />
          );
        })}
      </div>
      <ul class="map-legend" aria-label="Parts of the card's memory" data-testid="card">
        {card.segments.map((segment) => (
          <li
            key={segmentKey(segment)}
            data-figure={segmentKey(segment)}
            data-bytes={segment.bytes}
            data-tip={tipOf(segment.bytes, segmentMeaning(segment), `step ${card.step}`)}
          >
            <Swatch fill={segmentFill(segment, scheme)} />
            {segmentLabel(segment)}{" "}
            <span class="small">
              {formatBytes(segment.bytes)} · {formatShare(segment.bytes / total)}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Driver({ card }: { card: Card }) {
  const { driver_total_bytes: total, driver_used_bytes: used, driver_process_bytes: process } = card;
  if (total === null && used === null && process === null) return null;
  const figures: [string, number | null][] = [
    ["this process", process],
    ["all processes", used],
    ["card", total],
  ];
  const known = figures.filter((figure): figure is [string, number] => figure[1] !== null);
  return <span class="small">The driver says: {known.map(([name, bytes]) => `${name} ${formatBytes(bytes)}`).join(", ")}.</span>;
}

export function CardBar({ device, step }: { device: string; step: number | null }) {
  const store = useStore();
  const run = store.primary.value;
  useLayoutEffect(() => {
    if (run) store.wantCardIn(run, device, step);
  }, [run, device, step]);
  const card = run ? store.cardIn(run, device, step).value : null;
  return (
    <section class="card" aria-label="Where the memory is">
      <h2>
        {card?.driver_total_bytes === null ? `Where the memory of ${device} is` : "Where the card's memory is"}{" "}
        {card && <span class="small">at the peak of step {card.step}</span>}
      </h2>
      {card && (
        <>
          {card.segments.length > 0 && <Bar card={card} />}
          <p>
            {unbroken(cardSentence(card, formatBytes))} <Driver card={card} />
          </p>
          {card.notes.map((note) => (
            <p key={note} class="small">
              {note}
            </p>
          ))}
        </>
      )}
    </section>
  );
}

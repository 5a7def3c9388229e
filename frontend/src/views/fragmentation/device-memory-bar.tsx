/** The device's memory as one bar, from the driver's total to the categories. */

import { useRef } from "preact/hooks";

import { formatBytes, formatShare, unbroken } from "../../lib/bytes";
import { instantOf } from "../../model/overview";
import { deviceMemorySentence, inPool, segmentKey, segmentLabel, segmentMeaning, demandParts } from "../../model/pool";
import { fillOf, freeFill, outsideFill, type Fill, type Scheme } from "../../theme/palette";
import { schemeOf, useStore, useFetched } from "../shared/context";
import { Swatch } from "../shared/figures";
import { tipOf } from "../shared/tips";
import type { DeviceMemory, MemorySegment, RunInfo } from "../../schema";

function segmentFill({ part, category, trainable }: MemorySegment, scheme: Scheme): Fill {
  if (part === "in_use") return fillOf(category ?? "unattributed", trainable, scheme);
  if (part === "process_other" || part === "others") return outsideFill(part, scheme);
  if (part === "free_other") return freeFill("other", scheme);
  return freeFill(part === "free_largest" || part === "pool_free" ? "largest" : "unreserved", scheme);
}

function Bar({ memory }: { memory: DeviceMemory }) {
  const scheme = schemeOf(useStore());
  const total = memory.segments.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <>
      <div class="memory-bar" aria-hidden="true">
        {memory.segments.map((segment) => {
          const fill = segmentFill(segment, scheme);
          const tip = tipOf(segment.bytes, segmentLabel(segment));
          const style = { "--fill": fill.colour, width: `${(segment.bytes / total) * 100}%` };
          return (
            <i
              key={segmentKey(segment)}
              class={`fill ${fill.pattern} ${inPool(segment) ? "pool" : ""}`}
              style={style}
              data-figure={segmentKey(segment)}
              data-bytes={segment.bytes}
              data-tip={tip}
            />
          );
        })}
      </div>
      <ul class="map-legend" aria-label="Parts of the device's memory" data-testid="device-memory">
        {memory.segments.map((segment) => (
          <li
            key={segmentKey(segment)}
            data-figure={segmentKey(segment)}
            data-bytes={segment.bytes}
            data-tip={tipOf(segment.bytes, segmentMeaning(segment), `step ${memory.step}`)}
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

function Driver({ memory }: { memory: DeviceMemory }) {
  const { driver_total_bytes: total, driver_used_bytes: used, driver_process_bytes: process } = memory;
  if (total === null && used === null && process === null) return null;
  const figures: [string, number | null][] = [
    ["this process", process],
    ["all processes", used],
    ["device", total],
  ];
  const known = figures.filter((figure): figure is [string, number] => figure[1] !== null);
  return <span class="small">Driver: {known.map(([name, bytes]) => `${name} ${formatBytes(bytes)}`).join(", ")}.</span>;
}

export function DeviceMemoryBar({ device, step }: { device: string; step: number | null }) {
  const store = useStore();
  const run = store.primary.value;
  const { value: loaded } = useFetched(store.fetched.deviceMemories, run && [run, device, step]);
  // The step before stays, under its own number, until the next one is there: what stands below keeps its place.
  const kept = useRef<{ of: string; memory: DeviceMemory } | null>(null);
  const of = JSON.stringify([run?.run, device]);
  if (loaded) kept.current = { of, memory: loaded };
  const memory = kept.current?.of === of ? kept.current.memory : null;
  return (
    <section class="device-memory" aria-label="Device memory">
      <h2>
        Memory of {device} {memory && <span class="small">{instantOf(memory)}</span>}
      </h2>
      {memory && (
        <>
          {memory.segments.length > 0 && <Bar memory={memory} />}
          <p>
            {unbroken(deviceMemorySentence(memory, formatBytes))} <Driver memory={memory} />
          </p>
          {memory.notes.map((note) => (
            <p key={note} class="small">
              {note}
            </p>
          ))}
        </>
      )}
    </section>
  );
}

const CATEGORY = { demand: "activations", rounding: "rounding", unsplit: "unattributed" } as const;

export function DemandSection({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { value } = useFetched(store.fetched.demands, [run, device]);
  const demand = value?.demand;
  if (!demand) return null;
  return (
    <section class="demand" aria-label="Demand of the peak" data-testid="demand">
      <h2>
        Demand of the peak <span class="small">step {demand.step}, replayed</span>
      </h2>
      <div class="memory-bar">
        {demandParts(demand).map(({ name, label, bytes, share }) => {
          const { colour, pattern } = fillOf(CATEGORY[name], null, scheme);
          const style = { "--fill": colour, width: `${100 * share}%` };
          const figure = { "data-figure": `${name}_bytes`, "data-bytes": bytes, "data-tip": tipOf(bytes, label) };
          return <span key={name} class={`fill ${pattern}`} style={style} {...figure} />;
        })}
      </div>
      {demand.sentences.map((sentence) => (
        <p key={sentence}>{unbroken(sentence)}</p>
      ))}
    </section>
  );
}

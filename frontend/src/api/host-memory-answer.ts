/** The answer of the host memory route, checked and turned into the model. */

import { HOST_PARTS, type HostMemory } from "../model/host-memory";
import { PHASES } from "../model/run";
import { maybe, number, object, oneOf, text, readColumns } from "./check";

const head = object<Pick<HostMemory, "run" | "device" | "phase" | "worker" | "total_rows" | "summary">>({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  worker: text,
  total_rows: number,
  summary: maybe(object<NonNullable<HostMemory["summary"]>>({ sentence: text, growth: maybe(object<object>({})) })),
});

export const parseHostMemory = (buffer: ArrayBuffer): HostMemory =>
  readColumns(buffer, "host_memory", head, ["step", "wall_time", "host_resident_bytes", ...HOST_PARTS]).answer;

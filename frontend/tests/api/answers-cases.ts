/** The page's checks by the names of answers. */

import * as schema from "../../src/schema";

export {
  parseActivations,
  parseDevices,
  parseLedgerTotals,
  parseMap,
  parseOverview,
  parsePool,
  parseTimeline,
} from "../../src/api/source";

export const parseDeviceMemory = (json: unknown) => schema.deviceMemory(json, "device_memory");
export const parseFixes = (json: unknown) => schema.fixes(json, "fixes");
export const parseLayers = (json: unknown) => schema.layersAnswer(json, "layers");
export const parseMaps = (json: unknown) => schema.mapsAnswer(json, "maps").maps;
export const parseOoms = (json: unknown) => schema.oomsAnswer(json, "oom").ooms;
export const parseRuns = (json: unknown) => schema.runsAnswer(json, "runs");
export const parseSnapshot = (json: unknown) => schema.snapshot(json, "snapshot");
export const parseSnapshots = (json: unknown) =>
  schema.snapshotsAnswer(json, "snapshots").snapshots;
export const parseTimelines = (json: unknown) =>
  schema.timelinesAnswer(json, "timelines").timelines;

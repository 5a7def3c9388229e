/** How much of a device's highest recorded peak any allocator would need; the parts sum to the peak. */

import type { Phase } from "./run";

export interface Demand {
  step: number;
  phase: Phase;
  peak_bytes: number;
  /** Live at once. */
  demand_bytes: number;
  rounding_bytes: number;
  unsplit_bytes: number;
  sentences: string[];
}

interface DemandPart {
  name: "demand" | "rounding" | "unsplit";
  label: string;
  bytes: number;
  /** Of the peak. */
  share: number;
}

export function demandParts({ peak_bytes, demand_bytes, rounding_bytes, unsplit_bytes }: Demand): DemandPart[] {
  const share = (bytes: number): number => (peak_bytes > 0 ? bytes / peak_bytes : 0);
  return [
    { name: "demand", label: "live at once", bytes: demand_bytes, share: share(demand_bytes) },
    { name: "rounding", label: "rounding to 256 bytes", bytes: rounding_bytes, share: share(rounding_bytes) },
    { name: "unsplit", label: "unsplit remainders", bytes: unsplit_bytes, share: share(unsplit_bytes) },
  ];
}

/** The devices of a made-up training. */

import type { Plan } from "./training";

/** A device of a run, and what it alone would have recorded. */
export interface PlannedDevice {
  device: string;
  worker: string;
  name: string;
  plan: Plan;
}

/** The devices differ in the size of their batch. */
export function devicePlans(plan: Plan): PlannedDevice[] {
  if (plan.recorded !== undefined) return [];
  if (plan.workers === undefined) return [{ device: "GPU:0", worker: "", name: "GPU:0", plan }];
  const { count, devices } = plan.workers;
  return Array.from({ length: count * devices }, (_, index) => {
    const [worker, name] = [`worker_${Math.floor(index / devices)}`, `GPU:${index % devices}`];
    return {
      device: `${worker}/${name}`,
      worker,
      name,
      plan: { ...plan, scale: plan.scale * (1 + ((index * 7) % 5) / 20) },
    };
  });
}

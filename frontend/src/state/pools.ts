/** The selected run's pool over steps: the whole range, and a zoom at full resolution. */

import { computed, effect } from "@preact/signals";

import type { OverviewQuery, Source } from "../api/source";
import type { HostMemory } from "../model/host-memory";
import type { PoolSteps } from "../model/pool";
import type { Fetched } from "./fetched";
import { NOTHING, type Loaded } from "./resource";
import type { ChoicesSignal, Shown } from "./shown";

const POINTS = 1500;

type Span = readonly [number, number] | null;

export function createPools(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  const query = (span: Span): OverviewQuery | null => {
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    if (!run || device === null || !run.phases.includes(phase)) return null;
    return { run: run.run, device, phase, points: POINTS, span, session: choices.value.session };
  };
  effect(() => {
    const run = shown.primary.value;
    const { view, zoom } = choices.value;
    if (!run || view !== "fragmentation") return;
    const wanted = (zoom === null ? [null] : [null, zoom]).flatMap((span) => query(span) ?? []);
    for (const one of wanted) fetched.pools.want(JSON.stringify(one), run.version, (abort) => source.pool(one, abort));
    fetched.pools.keep(new Set(wanted.map((one) => JSON.stringify(one))));
    for (const one of wanted) fetched.hostMemories.want(JSON.stringify(one), run.version, (abort) => source.hostMemory(one, abort));
    fetched.hostMemories.keep(new Set(wanted.map((one) => JSON.stringify(one))));
  });
  const wholePool = computed((): Loaded<PoolSteps> => {
    const all = query(null);
    return all ? fetched.pools.read(JSON.stringify(all)) : NOTHING;
  });
  const pool = computed((): Loaded<PoolSteps> => {
    const all = query(null);
    if (!all) return NOTHING;
    const state = wholePool.value;
    const { zoom } = choices.value;
    if (zoom === null) return state;
    const near = fetched.pools.read(JSON.stringify({ ...all, span: zoom }));
    if (near.value && near.value.rows > 0) return near;
    return { ...state, error: near.error ?? state.error };
  });
  /** Host memory of the device's worker, at the steps of the pool's chart. */
  const hostMemory = computed((): Loaded<HostMemory> => {
    const all = query(null);
    if (!all) return NOTHING;
    const whole = fetched.hostMemories.read(JSON.stringify(all));
    const { zoom } = choices.value;
    const near = zoom === null ? NOTHING : fetched.hostMemories.read(JSON.stringify({ ...all, span: zoom }));
    return near.value && near.value.rows > 0 ? near : whole;
  });
  return { pool, wholePool, hostMemory };
}

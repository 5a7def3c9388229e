/** Columns over steps of the selected run, besides its overview. */

import { computed, effect } from "@preact/signals";

import type { Source, TotalsQuery } from "../api/source";
import type { Activations } from "../model/activations";
import type { RunInfo } from "../model/run";
import type { Fetched } from "./fetched";
import { NOTHING, type Loaded } from "./resource";
import type { ChoicesSignal, Shown } from "./shown";

/** Rows of recorded activations: each has as many figures as there are layers. */
const POINTS_OF_LAYERS = 600;

type Span = readonly [number, number] | null;

/** Recorded activations: the whole, and of a zoom its own with every step that fits. */
export function createActivations(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  const keyOf = (run: RunInfo, span: Span): string => JSON.stringify([run.run, span]);
  effect(() => {
    const run = shown.primary.value;
    const { view, zoom } = choices.value;
    if (!run || run.activation_layers === 0 || (view !== "activations" && run.devices.length > 0)) return;
    const spans: Span[] = zoom === null ? [null] : [null, zoom];
    for (const span of spans) {
      const load = (abort: AbortSignal): Promise<Activations> => source.activations(run.run, POINTS_OF_LAYERS, span, abort);
      fetched.activations.want(keyOf(run, span), run.version, load);
    }
    fetched.activations.keep(new Set(spans.map((span) => keyOf(run, span))));
  });
  const activations = computed((): Loaded<Activations> => {
    const run = shown.primary.value;
    if (!run) return NOTHING;
    const all = fetched.activations.read(keyOf(run, null));
    const { zoom } = choices.value;
    const near = zoom === null ? NOTHING : fetched.activations.read(keyOf(run, zoom));
    if (near.value && near.value.rows > 0) return near;
    return { ...all, error: near.error ?? all.error };
  });
  return { activations };
}

/** Totals of the ledgers: of all layers for the frozen view, of one for its page. */
export function createTotals(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  const query = computed((): TotalsQuery | null => {
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    const { view, layer, session } = choices.value;
    if (!run || device === null || (view !== "frozen" && (view !== "layer" || layer === null))) return null;
    return { run: run.run, device, phase, layer: view === "layer" ? layer : null, session };
  });
  effect(() => {
    const [wanted, run] = [query.value, shown.primary.value];
    if (!wanted || !run?.phases.includes(wanted.phase)) return;
    fetched.ledgerTotals.want(JSON.stringify(wanted), run.version, (abort) => source.ledgerTotals(wanted, abort));
  });
  return { ledgerTotals: computed(() => (query.value ? fetched.ledgerTotals.read(JSON.stringify(query.value)) : NOTHING)) };
}

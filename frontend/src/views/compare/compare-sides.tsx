/** The compared sides A and B: run, step, and source of the figures. */

import { at, provenance, type Overview } from "../../model/overview";
import type { RunInfo } from "../../model/run";
import type { Choices } from "../../state/address";
import { useStore } from "../shared/context";

export interface ComparedSide {
  letter: "A" | "B";
  run: RunInfo;
  overview: Overview;
  /** The row that is compared. */
  row: number;
  colour: string;
  /** The selected step; null for the default. */
  step: number | null;
}

export type Pair = readonly [ComparedSide, ComparedSide];

const stepOfSide = ({ overview, row }: ComparedSide): number | null => at(overview.step, row);
export const peakOfSide = ({ overview, row }: ComparedSide): number | null => at(overview.peak_bytes, row);

/** The choices that set a side's run. The toolbar selects the step of A. */
const chooseRun = (letter: "A" | "B", run: string): Partial<Choices> =>
  letter === "A" ? { primary: run, step: null, session: null } : { other: run, otherStep: null };

function sourceText({ overview, row }: ComparedSide): string {
  const source = provenance(overview, row);
  if (source.kind === "layer table") return "";
  if (source.kind === "failure") return ", at the failed allocation";
  return source.kind === "traced" ? "" : `, breakdown from step ${source.snapshot.step}`;
}

function Side({ side, device, phase }: { side: ComparedSide; device: boolean; phase: boolean }) {
  const store = useStore();
  const { letter, run, overview, colour, step } = side;
  const shown = stepOfSide(side);
  return (
    <div class="side">
      <span class="letter" style={{ borderColor: colour }}>
        {letter}
      </span>
      <select
        aria-label={`Run ${letter}`}
        title={run.run}
        value={run.run}
        onChange={(event) => store.choose(chooseRun(letter, event.currentTarget.value))}
      >
        {store.runs.value
          .filter(({ devices }) => devices.length > 0)
          .map(({ run: name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
      </select>
      {letter === "B" && (
        <label>
          <input
            type="number"
            min="0"
            placeholder="peak"
            aria-label="Step of B; empty for the traced step with the highest peak"
            value={step ?? ""}
            onChange={({ currentTarget: { value } }) => store.choose({ otherStep: value === "" ? null : Number(value) })}
          />
        </label>
      )}
      <span class="small" data-testid={`side-${letter}`} data-step={shown ?? ""}>
        {device && `${overview.device}, `}
        {phase && `${overview.phase}, `}
        {`step ${shown ?? "?"}${sourceText(side)}`}
      </span>
    </div>
  );
}

export function Sides({ pair }: { pair: Pair }) {
  const store = useStore();
  const [a, b] = pair;
  const swap = { primary: b.run.run, other: a.run.run, step: b.step, otherStep: a.step, session: null };
  return (
    <div class="sides">
      {pair.map((side) => (
        <Side
          key={side.letter}
          side={side}
          device={a.overview.device !== b.overview.device}
          phase={a.overview.phase !== b.overview.phase}
        />
      ))}
      <button type="button" class="quiet" aria-label="Swap A and B" onClick={() => store.choose(swap)}>
        ⇄
      </button>
    </div>
  );
}

/** Possible fixes of a failure: each that is a condition or a budget is a button that opens What if with it filled in. */

import { unbroken, formatBytes } from "../../lib/bytes";
import { fixConditions, fixWord } from "../../model/answer";
import { useStore, useFetched } from "./context";
import { Code, Fault } from "./states";
import type { Fix, Fixes, Oom, RunInfo } from "../../schema";

/** What to change; all figures are in the tooltip. `brief`: without the peak and the code. `said`: the fix before it said the same. */
function FixRow({ fix, oom, brief, said }: { fix: Fix; oom: Oom; brief: boolean; said: boolean }) {
  const store = useStore();
  const text = unbroken(fix.change);
  const conditions = store.recordedOnly ? null : fixConditions(fix, oom);
  return (
    <li data-fix={fix.kind}>
      {!(brief && said) && (
        <span class={fixWord(fix)} title={fix.enough === null ? "" : "Whole training steps, simulated by the allocator's rules"}>
          {said ? "" : fixWord(fix)}
        </span>
      )}
      {conditions === null ? (
        <span data-tip={fix.sentence}>{text}</span>
      ) : (
        <button
          type="button"
          class="fix"
          data-tip={`${fix.sentence}${brief ? "" : "\nOpen What if with it filled in"}`}
          onClick={() => store.choose({ view: "what-if", conditions, device: oom.device })}
        >
          {text}
        </button>
      )}
      {!brief && <span class="number">{fix.peak_bytes === null ? "" : formatBytes(fix.peak_bytes)}</span>}
      {!brief && fix.code !== null && <Code title="Apply it">{fix.code}</Code>}
    </li>
  );
}

function FixList({ found: { fixes, note }, oom, brief }: { found: Fixes; oom: Oom; brief: boolean }) {
  // In brief, those that fit are enough.
  const fits = brief ? fixes.filter(({ enough }) => enough) : [];
  const shown = fits.length > 0 ? fits : fixes;
  return (
    <>
      {fixes.length > 0 && (
        <ul class={brief ? "fixes brief" : "fixes"} data-testid="fixes">
          {shown.map((fix, index) => (
            <FixRow key={fix.kind} fix={fix} oom={oom} brief={brief} said={fix.enough === shown[index - 1]?.enough} />
          ))}
        </ul>
      )}
      {note !== null && (
        <p class="small" data-testid="fixes-note">
          {unbroken(note)}
        </p>
      )}
    </>
  );
}

export function PossibleFixes({ run, oom, index, brief = false }: { run: RunInfo; oom: Oom; index: number; brief?: boolean }) {
  const store = useStore();
  const { value, error } = useFetched(store.fetched.fixes, [run, index]);
  if (value !== null) return <FixList found={value} oom={oom} brief={brief} />;
  if (error !== null) return <Fault sentence={error} />;
  return (
    <p class="small" role="status">
      Simulating training steps…
    </p>
  );
}

export function Requester({ oom }: { oom: Oom }) {
  const store = useStore();
  const { op, layer, line, step } = oom;
  return (
    <>
      {layer !== null && (
        <>
          in{" "}
          <button type="button" class="link" title="Open the layer" onClick={() => store.choose({ view: "layer", layer, step })}>
            {layer}
          </button>
        </>
      )}
      {op !== null && (
        <>
          {" "}
          (
          <button type="button" class="link" title={`${op}: open the step`} onClick={() => store.choose({ view: "step", step, layer })}>
            {op.split("/").at(-1)}
          </button>
          )
        </>
      )}
      {line !== null && (
        <>
          , <code>{line}</code>
        </>
      )}
    </>
  );
}

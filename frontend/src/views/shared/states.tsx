/** Loading, errors, empty states, and notes on missing data. */

import type { ComponentChildren, HTMLAttributes } from "preact";
import { useEffect, useState, useRef } from "preact/hooks";

import { codeSpans, plural, unbroken } from "../../lib/bytes";
import { whyNoDevice } from "../../model/run";
import type { Loaded } from "../../state/resource";
import { useStore } from "./context";
import type { RunInfo } from "../../schema";

interface CodeProps {
  children: string;
  title: string;
  /** Whether to show only its title and the button until it is opened. */
  folded?: boolean;
}

interface CopyProps {
  /** Asked for when it is copied. */
  text: () => string;
  name?: string;
  title?: string;
}

/** A button that copies a text and says so. */
export function CopyButton({ text, name = "Copy", title }: CopyProps) {
  const [said, say] = useState(name);
  const copy = async (button: HTMLElement): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      say("Copied");
    } catch {
      // A page served over plain http from another machine has no clipboard: mark the text for
      // Ctrl+C instead.
      const code = button.closest(".code")?.querySelector("code");
      if (code) window.getSelection()?.selectAllChildren(code);
      else window.prompt("Press Ctrl+C", text());
      say(code ? "Press Ctrl+C" : name);
    }
    window.setTimeout(() => say(name), 2000);
  };
  return (
    <button
      type="button"
      class="copy"
      title={title}
      onClick={({ currentTarget }) => void copy(currentTarget)}
    >
      {said}
    </button>
  );
}

export function Code({ children, title, folded = false }: CodeProps) {
  return (
    <section class="code">
      <details open={!folded}>
        <summary>
          <h3>{title}</h3>
        </summary>
        <pre tabIndex={0}>
          <code>{children}</code>
        </pre>
      </details>
      <CopyButton text={() => children} />
    </section>
  );
}

const CALLBACK = `import tb_memplugin

model.fit(..., callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])`;

const RECORDER = `import tb_memplugin

with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
    for step, batch in enumerate(dataset):
        with recorder.step(step):
            train_step(batch)`;

const SUMMARY = `import tensorflow as tf
import tb_memplugin

with tf.summary.create_file_writer("runs/exp1/memory").as_default():
    tb_memplugin.summary.layer_activations({"block1_conv1": 205_520_896}, step=step)`;
/** Chooses the steps to trace. */
export const TRACE_STEPS = 'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])';

export const IMPORT = "tb-memplugin import training.log --logdir runs";

const EMPTY =
  "Add one of these to your training script and run it. Data appears here within seconds, while the training runs.";
const START = "Start TensorBoard on the parent directory: `tensorboard --logdir runs`";

export const Empty = () => (
  <div class="empty" data-testid="empty">
    <h2>No memory data yet</h2>
    <p>{EMPTY}</p>
    <Code title="Keras: one callback">{CALLBACK}</Code>
    <Code title="Custom training loop">{RECORDER}</Code>
    <Code title="Your own figures, such as activation bytes by layer">{SUMMARY}</Code>
    <Code title="A job that failed without the recorder: its log, or its dump (TF_BFC_MEMORY_DUMP)">
      {IMPORT}
    </Code>
    <p class="small">
      <Sentence of={START} />
    </p>
  </div>
);

/** True once `waiting` has lasted 200 ms: a shorter spinner would only flicker. */
function useSlow(waiting: boolean): boolean {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    if (!waiting) {
      setSlow(false);
      return undefined;
    }
    const timer = window.setTimeout(() => setSlow(true), 200);
    return () => window.clearTimeout(timer);
  }, [waiting]);
  return slow;
}

export const Skeleton = () => (
  <div class={useSlow(true) ? "skeleton shown" : "skeleton"} role="status" aria-label="Loading" />
);

export const Progress = ({ children }: { children: ComponentChildren }) => (
  <p class="progress small" role="status">
    {children}
  </p>
);

export function Fault({ sentence }: { sentence: string }) {
  const store = useStore();
  return (
    <div class="fault" role="alert">
      <p>{sentence}</p>
      <button type="button" onClick={() => void store.reload()}>
        Try again
      </button>
    </div>
  );
}

export function Await<T>({
  loaded,
  children,
}: {
  loaded: Loaded<T>;
  children: (value: T) => ComponentChildren;
}) {
  if (loaded.value === null)
    return loaded.error === null ? <Skeleton /> : <Fault sentence={loaded.error} />;
  return (
    <>
      {loaded.error !== null && <Fault sentence={`Not up to date: ${loaded.error}`} />}
      {children(loaded.value)}
    </>
  );
}

interface NothingProps {
  title: string;
  sentences: readonly string[];
  /** What to type, below the sentences. */
  code?: string;
}

export const Nothing = ({ title, sentences, code }: NothingProps) => (
  <div class="nothing" data-testid="nothing">
    <h2>{title}</h2>
    {sentences.map((sentence) => (
      <p key={sentence}>
        <Sentence of={sentence} />
      </p>
    ))}
    {code !== undefined && (
      <pre tabIndex={0}>
        <code>{code}</code>
      </pre>
    )}
  </div>
);

/** Why the chart of a device is empty. */
export const NoSteps = ({
  of: { run, device, phase },
}: {
  of: Record<"run" | "device" | "phase", string>;
}) => (
  <Nothing
    title={`No ${phase} step of ${run} was recorded on ${device}`}
    sentences={["Choose another phase or device above."]}
  />
);

export function NoticeList({
  sentences,
  testid,
  kind = "notices",
}: {
  sentences: readonly string[];
  testid?: string;
  kind?: string | undefined;
}) {
  if (sentences.length === 0) return null;
  return (
    <ul class={kind} data-testid={testid}>
      {sentences.map((sentence) => (
        <li key={sentence}>
          <Sentence of={sentence} />
        </li>
      ))}
    </ul>
  );
}

/**
 * A sentence with its code spans, the parts between backticks, set as code; everything stays text.
 */
export const Sentence = ({ of }: { of: string }) => (
  <>
    {codeSpans(of).map((part, index) =>
      part.code ? <code key={index}>{part.text}</code> : part.text,
    )}
  </>
);

function Folded({ sentences, about }: { sentences: readonly string[]; about: string }) {
  if (sentences.length === 0) return null;
  return (
    <details class="folded">
      <summary>
        {plural(sentences.length, "note")} on {about}
      </summary>
      <NoticeList sentences={sentences} kind={undefined} />
    </details>
  );
}

export function WhyNoDevice({ run }: { run: RunInfo }) {
  const reasons = whyNoDevice(run);
  if (reasons.length === 0) return null;
  return (
    <ul class="notices" role="status" data-testid="no-device">
      {reasons.map((reason) => (
        <li key={reason} class="damage">
          <Sentence of={reason} />
        </li>
      ))}
    </ul>
  );
}

export function Notices({ run }: { run: RunInfo }) {
  const { absent } = useStore();
  const reasons = whyNoDevice(run);
  const notes = run.notes.filter((note) => !reasons.includes(note));
  if (run.damage.length + notes.length + absent.length === 0) return null;
  return (
    <div class="folds" data-testid="notices">
      <Folded sentences={absent} about="data not in this report" />
      <Folded sentences={run.damage} about="unreadable data" />
      <Folded sentences={notes} about="data not recorded" />
    </div>
  );
}

/**
 * Findings as they are said, without a link; `said` is the test id of a sentence, other attributes
 * are those of the list.
 */
export const Findings = ({
  sentences,
  said,
  ...list
}: { sentences: readonly string[]; said?: string } & HTMLAttributes<HTMLUListElement>) => (
  <ul class="findings" {...list}>
    {sentences.map((sentence) => (
      <li key={sentence}>
        <span class="sentence" data-testid={said}>
          {unbroken(sentence)}
        </span>
      </li>
    ))}
  </ul>
);

export const Known = ({
  sentence,
  children,
}: {
  sentence?: string;
  children?: ComponentChildren;
}) => (
  <details class="known">
    <summary>How is this known?</summary>
    {sentence !== undefined && <p class="small">{sentence}</p>}
    {children}
  </details>
);

/**
 * While the next answer is computed, and after an error, the last one stays, so that nothing moves.
 */
export function useLast<T>(value: T | null): T | null {
  const last = useRef<T | null>(null);
  if (value !== null) last.current = value;
  return last.current;
}

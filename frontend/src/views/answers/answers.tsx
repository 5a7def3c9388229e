/** The answers to the four questions on the selected run, each a button that shows its evidence. */

import { unbroken } from "../../lib/bytes";
import { ANSWER_NAMES, STATUS_WORDS, answerTip, type Answer, type AnswerName, type AnswerStatus } from "../../model/answer";
import type { RunInfo } from "../../model/run";
import { useStore } from "../shared/context";
import { choicesFor } from "../shared/evidence";
import { useFetched } from "../shared/fetched";

/** Told apart by shape as well as by colour: a tick, an exclamation mark, a cross, a question mark. */
const ICONS: Record<AnswerStatus, string> = {
  ok: "M3 8.5 6.5 12 13 4.5",
  warning: "M8 3v6.5M8 12v1",
  failed: "M4 4 12 12M12 4 4 12",
  unknown: "M5.5 6a2.5 2.5 0 1 1 3.8 2.1C8.4 8.7 8 9.2 8 10M8 12.3v.9",
};

function Status({ status }: { status: AnswerStatus }) {
  return (
    <span class="tile-status">
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        <path d={ICONS[status]} />
      </svg>
      <span class="unseen">{STATUS_WORDS[status]}</span>
    </span>
  );
}

function Tile({ answer, show }: { answer: Answer; show: () => void }) {
  const { name, question, sentence, status, figures } = answer;
  const tip = answerTip(answer);
  return (
    <button
      type="button"
      class={`tile ${status}`}
      data-answer={name}
      data-status={status}
      data-figures={JSON.stringify(figures)}
      data-tip={tip === "" ? undefined : tip}
      onClick={show}
    >
      <span class="unseen">{question} </span>
      <Status status={status} />
      <span class="tile-sentence">{unbroken(sentence)}</span>
    </button>
  );
}

/** A tile's place while its answer is loading, or after an error. */
const Blank = ({ name, why }: { name: AnswerName; why: string | null }) => (
  <span key={name} class="tile blank" role={why === null ? undefined : "status"}>
    {name === "fits" && why !== null && <span class="tile-sentence">{why}</span>}
  </span>
);

export function Answers({ run }: { run: RunInfo }) {
  const store = useStore();
  const { value, error, loading } = useFetched(
    store.fetched.answers,
    run.status === "reading" ? null : [run, store.device.value, store.phase.value],
  );
  return (
    <section class="answers" aria-label="Answers" data-testid="answers" aria-busy={loading}>
      {value === null
        ? ANSWER_NAMES.map((name) => <Blank key={name} name={name} why={error} />)
        : value.map((answer) => <Tile key={answer.name} answer={answer} show={() => store.choose(choicesFor(answer.evidence, run))} />)}
    </section>
  );
}

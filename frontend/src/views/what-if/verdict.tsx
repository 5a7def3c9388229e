/** The headline of an answer, in the colour of its verdict, and what follows it. */

import { unbroken } from "../../lib/bytes";
import { headlineOf, type verdictOf } from "../../model/what-if";
import { Sentence } from "../shared/states";

interface VerdictProps {
  name: string;
  verdict: ReturnType<typeof verdictOf>;
  sentence: string;
}

export function Verdict({ name, verdict, sentence }: VerdictProps) {
  const [headline, reason] = headlineOf(sentence);
  return (
    <>
      <h2 class="verdict" data-testid={name} data-verdict={verdict} aria-live="polite">
        {unbroken(headline)}
      </h2>
      {reason !== "" && (
        <p class="reason">
          <Sentence of={reason} />
        </p>
      )}
    </>
  );
}

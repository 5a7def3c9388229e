/** Why B differs from A, where these are the steps that answer "What changed?". */

import { unbroken } from "../../lib/bytes";
import { changeBetween } from "../../model/answer";
import { at } from "../../model/overview";
import { useStore } from "../shared/context";
import { useFetched } from "../shared/fetched";
import { NoticeList } from "../shared/states";
import type { ComparedSide, Pair } from "./compare-sides";

const stepOf = ({ overview, row }: ComparedSide): number | null => at(overview.step, row);

export function Causes({ pair: [a, b] }: { pair: Pair }) {
  const store = useStore();
  const isOneRun = a.run === b.run && a.overview.device === b.overview.device && a.overview.phase === b.overview.phase;
  const { value } = useFetched(store.fetched.answers, isOneRun ? [a.run, a.overview.device, a.overview.phase] : null);
  const change = changeBetween(value, stepOf(a), stepOf(b));
  if (change === null) return null;
  return <NoticeList sentences={[change.sentence, ...change.details].map(unbroken)} testid="causes" />;
}

/** The answer of the route with the four answers, checked. */

import { ANSWER_NAMES, ANSWER_SOURCES, ANSWER_STATUSES, EVIDENCE_VIEWS, type Answer, type Evidence } from "../model/answer";
import { CATEGORIES } from "../model/categories";
import { PHASES } from "../model/run";
import { list, maybe, number, object, oneOf, text, type Check } from "./check";

const figures: Check<Record<string, number>> = (value, where) => {
  const given = object<Record<string, number>>({})(value, where);
  for (const [name, one] of Object.entries(value as object)) given[name] = number(one, `${where}.${name}`);
  return given;
};

const answersAnswer = object<{ answers: Answer[] }>({
  answers: list(
    object<Answer>({
      name: oneOf(ANSWER_NAMES),
      question: text,
      sentence: text,
      status: oneOf(ANSWER_STATUSES),
      source: oneOf(ANSWER_SOURCES),
      evidence: object<Evidence>({
        view: oneOf(EVIDENCE_VIEWS),
        step: maybe(number),
        phase: maybe(oneOf(PHASES)),
        other_step: maybe(number),
        category: maybe(oneOf(CATEGORIES)),
        layer: maybe(text),
        zoom: maybe(list(number)),
        oom: maybe(number),
      }),
      figures,
      details: list(text),
    }),
  ),
});
export const parseAnswers = (json: unknown): Answer[] => answersAnswer(json, "answers").answers;

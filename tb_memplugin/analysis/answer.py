"""An answer to one of the four questions on a run: a sentence, how it is known, and where its evidence is. Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from tb_memplugin.schema import Category, Phase, as_json

AnswerName: TypeAlias = Literal["fits", "growing", "fragmented", "changed"]
AnswerStatus: TypeAlias = Literal["ok", "warning", "failed", "unknown"]
AnswerSource: TypeAlias = Literal["measured", "inferred", "unknown"]
EvidenceView: TypeAlias = Literal["overview", "fragmentation", "oom", "compare"]

QUESTIONS: Mapping[AnswerName, str] = {
    "fits": "Fits?",
    "growing": "Growing?",
    "fragmented": "Fragmented?",
    "changed": "What changed?",
}


@dataclasses.dataclass(frozen=True)
class AnswerEvidence:
    """The place of the page that shows an answer.

    Attributes:
        step, phase: None if no single step shows it.
        other_step: The step that `step` is compared with.
        category, layer: What grows, if known.
        oom: Index of the failed allocation in the run's.
    """

    view: EvidenceView
    step: int | None = None
    phase: Phase | None = None
    other_step: int | None = None
    category: Category | None = None
    layer: str | None = None
    zoom: tuple[int, int] | None = None
    oom: int | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer on one device.

    Attributes:
        device: None for a run without allocator data.
        sentence: A few words with one or two numbers.
        status: ``unknown`` if the data does not answer the question.
        figures: The numbers behind the sentence; sizes in bytes under names that end in ``_bytes``.
        details: Sentences on what the first one leaves out.
    """

    name: AnswerName
    device: str | None
    sentence: str
    status: AnswerStatus
    source: AnswerSource
    evidence: AnswerEvidence
    figures: Mapping[str, int | float]
    details: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return QUESTIONS[self.name]


def known(**figures: int | float | None) -> dict[str, int | float]:
    return {name: value for name, value in figures.items() if value is not None}


def describe_answer(answer: Answer) -> dict[str, Any]:
    return {**as_json(answer), "question": answer.question}

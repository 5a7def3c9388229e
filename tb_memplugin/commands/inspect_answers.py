"""The answers to the four questions as text for the terminal. Pure."""

import textwrap
from collections.abc import Sequence

from tb_memplugin.analysis.answer import QUESTIONS, Answer

_MARKS = {"ok": "", "warning": "warning", "failed": "failed", "unknown": "unknown"}


def answer_lines(device: str, answers: Sequence[Answer]) -> list[str]:
    """The answers on a device, one line each, and below it its details; texts of the run are not cleaned yet."""
    width = max(map(len, QUESTIONS.values()))
    lines = [f"{device}:"]
    for answer in answers:
        marks = [_MARKS[answer.status], "inferred" if answer.source == "inferred" else ""]
        suffix = ", ".join(filter(None, marks))
        text = f"{answer.question:<{width}}  {answer.sentence}" + (f" ({suffix})" if suffix else "")
        lines += textwrap.wrap(text, 120, initial_indent="  ", subsequent_indent="      ", break_long_words=False)
        indent = " " * (width + 4)
        for detail in answer.details:
            lines += textwrap.wrap(detail, 120, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    return lines

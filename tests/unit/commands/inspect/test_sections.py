"""Answers in the terminal: a line each, with what it leaves out below it."""

import dataclasses

from tb_memplugin.analysis.answers.answer import QUESTIONS, Answer, AnswerEvidence
from tb_memplugin.commands.inspect.sections import answer_lines

CHANGED = Answer(
    "changed",
    "CPU:0",
    "Step 72: unfroze 8 layers",
    "ok",
    "measured",
    AnswerEvidence("compare"),
    {},
    ("One.", "Two " * 40),
)


def test_details_stand_below_their_answer() -> None:
    lines = answer_lines("CPU:0", [CHANGED, dataclasses.replace(CHANGED, name="fits", details=(), status="failed")])
    assert lines[:3] == ["CPU:0:", "  What changed?  Step 72: unfroze 8 layers", "                 One."]
    assert all(line.startswith(17 * " ") and len(line) <= 120 for line in lines[3:-1]) and len(lines) == 6
    assert lines[-1] == f"  {QUESTIONS['fits']:<13}  Step 72: unfroze 8 layers (failed)"

"""The pool over the steps as text for the terminal. Pure."""

import textwrap
from collections.abc import Sequence

from tb_memplugin.analysis.facts import step_name
from tb_memplugin.analysis.pool_spans import PoolHistory, PoolSpan
from tb_memplugin.model import Phase
from tb_memplugin.model.units import format_bytes

MAX_LINES = 12
"""Printed spans and sentences: the last ones."""

_WHEN = {"measured": "measured at step end", "traced": "traced, at the peak", "failed": "at the failed allocation"}


def pool_lines(device: str, history: PoolHistory, phase: Phase = "train") -> list[str]:
    """The pool of a device in spans of steps, and its growth; no lines if it is unknown."""
    if not history.spans:
        return []
    lines = [f"{device}, pool over {step_name(phase)}s:"]
    sentences = [_span_line(span) for span in history.spans] + list(history.sentences)
    left_out = len(sentences) - MAX_LINES
    if left_out > 0:
        lines.append(f"  {left_out} earlier lines are not shown")
    for sentence in sentences[-MAX_LINES:]:
        lines += textwrap.wrap(sentence, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return lines


def demand_lines(device: str, sentences: Sequence[str]) -> list[str]:
    """The parts of a device's highest recorded peak, as `demand_sentences` says them."""
    lines = [f"{device}, demand of the peak:"]
    for sentence in sentences:
        lines += textwrap.wrap(sentence, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return lines


def _span_line(span: PoolSpan) -> str:
    steps, count = f"step {span.first_step}", ""
    if span.first_step != span.last_step:
        steps, count = f"steps {span.first_step} to {span.last_step}", f"{span.known_steps} "
    least, most = format_bytes(span.least_free_bytes), format_bytes(span.most_free_bytes)
    parts = [f"pool {format_bytes(span.pool_bytes)}", f"free {least if least == most else f'{least} to {most}'}"]
    if span.least_largest_free_bytes is not None:
        parts.append(f"largest free chunk at least {format_bytes(span.least_largest_free_bytes)}")
    if span.most_fragmentation is not None:
        parts.append(f"fragmentation up to {100 * span.most_fragmentation:.0f} %")
    return f"{steps} ({count}{_WHEN[span.source]}): {', '.join(parts)}"

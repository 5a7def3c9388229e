"""What is known of the pool over the steps, as text for a terminal. Pure."""

import textwrap

from tb_memplugin.analysis.pool_steps import PoolHistory, PoolSpan
from tb_memplugin.units import format_bytes

MAX_LINES = 12
"""Spans and sentences that are told; of more, the last ones."""

_HOW = {
    "traced": "measured",
    "inferred": "follows from the traced steps around",
    "bounded": "not known more closely between traced steps",
}


def pool_lines(device: str, history: PoolHistory) -> list[str]:
    """The pool of a device in spans of steps, and how it grew; no line where nothing is known."""
    if not history.spans:
        return []
    lines = [f"{device}, the pool over the training steps:"]
    told = [_span_line(span) for span in history.spans] + list(history.sentences)
    left_out = len(told) - MAX_LINES
    if left_out > 0:
        lines.append(f"  {left_out} lines before are left out")
    for sentence in told[-MAX_LINES:]:
        lines += textwrap.wrap(sentence, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return lines


def _span_line(span: PoolSpan) -> str:
    steps = f"step {span.first_step}" if span.first_step == span.last_step else f"{span.first_step} to {span.last_step}"
    how = _HOW.get(span.source, span.source)
    if span.low_bytes != span.high_bytes:
        least = format_bytes(span.low_bytes)
        between = (
            f"{least} or more" if span.high_bytes is None else f"between {least} and {format_bytes(span.high_bytes)}"
        )
        return f"{steps}: {between} ({how})"
    least, most_idle = format_bytes(span.least_idle_bytes), format_bytes(span.most_idle_bytes)
    idle = least if least == most_idle else f"{least} to {most_idle}"
    return f"{steps}: {format_bytes(span.low_bytes)}, of it idle at the steps' peaks {idle} ({how})"

"""Sections of a run as text for the terminal: answers, pool, host memory and failed allocations. Pure."""

import textwrap
from collections.abc import Iterable, Sequence

from tb_memplugin.analysis.answers.answer import QUESTIONS, Answer
from tb_memplugin.analysis.growth.host_memory import PART_NAMES, HostSummary
from tb_memplugin.analysis.pool import PoolHistory, PoolSpan
from tb_memplugin.analysis.steps.facts import step_name
from tb_memplugin.model import Oom, Phase
from tb_memplugin.model.units import UNKNOWN, format_bytes

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
    return lines + _wrapped(sentences[-MAX_LINES:])


def demand_lines(device: str, sentences: Sequence[str]) -> list[str]:
    """The parts of a device's highest recorded peak, as `demand_sentences` says them."""
    return [f"{device}, demand of the peak:", *_wrapped(sentences)]


def _wrapped(sentences: Iterable[str], first: str = "  ", following: str = "    ") -> list[str]:
    """The lines of sentences, with the indents of the first line of each and of the others."""
    wrapper = textwrap.TextWrapper(120, initial_indent=first, subsequent_indent=following, break_long_words=False)
    return [line for sentence in sentences for line in wrapper.wrap(sentence)]


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


def host_lines(worker: str, summary: HostSummary) -> list[str]:
    """RSS of a worker, its parts, and its growth."""
    resident, peak, state = format_bytes(summary.resident_bytes), format_bytes(summary.peak_bytes), summary.state
    sentences = [f"RSS {resident} at the last step, at most {peak} at step {summary.peak_step}"]
    if state is not None:
        sizes = {name: size for name, size in state.parts.items() if size or name == "other_bytes"}
        parts = " + ".join(f"{PART_NAMES[name]} {format_bytes(size)}" for name, size in sizes.items())
        sentences.append(f"step {state.step}: RSS {format_bytes(state.resident_bytes)} = {parts}")
    sentences.append(summary.sentence())
    return [f"{worker}, host memory:" if worker else "host memory:", *_wrapped(sentences)]


MAX_OWNERS = 12
"""Listed owners; the others are summed in one line."""


def oom_lines(oom: Oom) -> list[str]:
    """The request, the verdict, memory at failure and possible fixes. Texts of the run are not cleaned yet."""
    where = f" {oom.place}".rstrip()
    head = f"{oom.device}, ran out of memory{where}: {format_bytes(oom.requested_bytes)} requested"
    requester = ", ".join(text for text in (oom.op, oom.shape, oom.layer and f"layer {oom.layer}", oom.line) if text)
    lines = [f"{head} by {requester}" if requester else head]
    if oom.outcome:
        lines.append(f"  {oom.outcome}")
    lines.append(f"  verdict: {oom.verdict or UNKNOWN}. {oom.reason}".rstrip())
    figures = (
        ("in use", oom.in_use_bytes),
        ("free", oom.free_bytes),
        ("largest free chunk", oom.largest_free_bytes),
        ("pool", oom.pool_bytes),
        ("capacity", oom.capacity_bytes),
    )
    lines.append("  " + ", ".join(f"{name} {format_bytes(size)}" for name, size in figures))
    if oom.ledger:
        lines.append("  memory at failure, by layer and category:")
    for row in oom.ledger[:MAX_OWNERS]:
        owner = ", ".join(filter(None, (row.layer, row.category.replace("_", " "))))
        lines.append(f"    {format_bytes(row.bytes):>10}  {owner}")
    others = oom.ledger[MAX_OWNERS:]
    if others:
        lines.append(f"    {format_bytes(sum(row.bytes for row in others)):>10}  {len(others)} more")
    if oom.fixes:
        lines.append("  possible fixes:")
    for fix in oom.fixes:
        word = {True: "fits", False: "fails", None: "estimate"}[fix.enough]
        lines.append(f"    {word:>10}  {fix.sentence}")
        lines += [f"                {line}" for line in (fix.code or "").splitlines()]
    lines.extend(f"  {sentence}" for sentence in oom.not_available)
    return lines


_MARKS = {"ok": "", "warning": "warning", "failed": "failed", "unknown": "unknown"}


def answer_lines(device: str, answers: Sequence[Answer]) -> list[str]:
    """The answers on a device, one line each, and below it its details; texts of the run are not cleaned yet."""
    width = max(map(len, QUESTIONS.values()))
    lines = [f"{device}:"]
    for answer in answers:
        marks = [_MARKS[answer.status], "inferred" if answer.source == "inferred" else ""]
        suffix = ", ".join(filter(None, marks))
        text = f"{answer.question:<{width}}  {answer.sentence}" + (f" ({suffix})" if suffix else "")
        indent = " " * (width + 4)
        lines += _wrapped([text], following="      ") + _wrapped(answer.details, indent, indent)
    return lines

"""A post-mortem as text for a terminal. Pure."""

from tb_memplugin.model import Oom
from tb_memplugin.units import UNKNOWN, format_bytes

MAX_OWNERS = 12
"""Owners that are listed; the rest are summed up in one more line."""


def oom_lines(oom: Oom) -> list[str]:
    """What failed, why, who held the memory and what would have let it pass; texts of the run are not cleaned yet."""
    where = "" if oom.step is None else f" at step {oom.step} ({oom.phase})"
    head = f"{oom.device}, out of memory{where}: {format_bytes(oom.requested_bytes)} asked for"
    asked_by = ", ".join(text for text in (oom.op, oom.shape, oom.layer and f"layer {oom.layer}") if text)
    lines = [f"{head} by {asked_by}" if asked_by else head]
    if oom.status == "failing":
        lines.append("  the process ended while TensorFlow was still waiting for memory, or this is a dump alone")
    lines.append(f"  verdict: {oom.verdict or UNKNOWN}. {oom.reason}".rstrip())
    figures = (
        ("in use", oom.in_use_bytes),
        ("free in the pool", oom.free_bytes),
        ("largest block", oom.largest_free_bytes),
        ("pool", oom.pool_bytes),
        ("limit", oom.capacity_bytes),
    )
    lines.append("  " + ", ".join(f"{name} {format_bytes(size)}" for name, size in figures))
    if oom.ledger:
        lines.append("  who held it:")
    for row in oom.ledger[:MAX_OWNERS]:
        owner = f"{row.layer or UNKNOWN}, {row.category.replace('_', ' ')}"
        lines.append(f"    {format_bytes(row.bytes):>10}  {owner}")
    rest = oom.ledger[MAX_OWNERS:]
    if rest:
        lines.append(f"    {format_bytes(sum(row.bytes for row in rest)):>10}  {len(rest)} more")
    if oom.remedies:
        lines.append("  what would have let it pass:")
    for remedy in oom.remedies:
        lines.append(f"    {format_bytes(remedy.bytes):>10}  {remedy.sentence}")
    lines.extend(f"  {sentence}" for sentence in oom.not_available)
    return lines

"""A failed allocation as text for the terminal. Pure."""

from tb_memplugin.model import Oom
from tb_memplugin.model.units import UNKNOWN, format_bytes

MAX_OWNERS = 12
"""Listed owners; the others are summed in one line."""


def oom_lines(oom: Oom) -> list[str]:
    """The request, the verdict, memory at failure and possible fixes. Texts of the run are not cleaned yet."""
    where = "" if oom.step is None else f" at step {oom.step} ({oom.phase})"
    head = f"{oom.device}, ran out of memory{where}: {format_bytes(oom.requested_bytes)} requested"
    requester = ", ".join(text for text in (oom.op, oom.shape, oom.layer and f"layer {oom.layer}", oom.line) if text)
    lines = [f"{head} by {requester}" if requester else head]
    if oom.status == "failing":
        lines.append(
            "  outcome unknown: the process ended while TensorFlow waited for memory, or only a dump was imported"
        )
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

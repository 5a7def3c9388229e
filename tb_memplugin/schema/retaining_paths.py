"""Paths of references as text, from a module or a running function to a tensor:
``module __main__ › history (list) › [12] (dict) › "loss"``. Each object has its class in parentheses."""

from collections.abc import Sequence

SEPARATOR = " › "
OMITTED = "…"
"""Stands for a name, a key or an index that is unknown, is not stored, or differs."""


def common_path(paths: Sequence[str]) -> str | None:
    """The path to several tensors, with "…" for the references that differ; None without any."""
    split = [path.split(SEPARATOR) for path in dict.fromkeys(paths)]
    if not split:
        return None
    columns = list(zip(*split, strict=False))
    if any(len(parts) != len(columns) for parts in split):
        same = next((at for at, parts in enumerate(columns) if len(set(parts)) > 1), len(columns))
        return SEPARATOR.join([*split[0][:same], OMITTED])
    return SEPARATOR.join(map(_common_part, columns))


def _common_part(parts: Sequence[str]) -> str:
    references, _, classes = zip(*(part.partition(" (") for part in parts), strict=True)
    reference = references[0]
    if len(set(references)) > 1:
        reference = f"[{OMITTED}]" if all(one.startswith("[") for one in references) else OMITTED
    return f"{reference} ({classes[0]}" if classes[0] and len(set(classes)) == 1 else reference

"""What is asked: the conditions under which a run is predicted, and the interval in bytes of each
answer. Pure."""

import dataclasses
import difflib
import fnmatch
import glob
import operator
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.errors import RequestError
from tb_memplugin.schema import SIZE_RULE, Layer, format_bytes, parse_bytes, parse_share

_NAMES = (
    ("sgd",),
    ("momentum", "rmsprop", "adagrad", "lion"),
    ("adam", "adamw", "adamax", "nadam", "adadelta", "ftrl"),
)
SLOTS = {name: slots for slots, names in enumerate(_NAMES) for name in names}
"""Slots that Keras's optimizers keep for each weight; ``momentum`` is SGD with momentum."""
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
MAX_GLOB_CHARACTERS = 1_000
"""Most characters of the globs for layers."""
MAX_COMPARED = 2_000
"""Most paths that are compared with a glob to find the nearest."""
MAX_BATCH_SIZE = 1 << 24
MAX_CAPACITY_BYTES = 1 << 50
Globs: TypeAlias = str | Collection[str]
"""A glob for paths of layers, several that commas separate, or a list of them."""


WIDE = 4
"""A range says little from this factor between its ends on: a peak of 2 to 876 MiB is unknown."""
TOO_LITTLE = (
    "Unknown: the recorded steps do not show enough of it. Record a few steps with this change."
)


class Interval(NamedTuple):
    """Bytes that are not known exactly: the fewest, the typical and the most."""

    low_bytes: int
    typical_bytes: int
    high_bytes: int

    def __str__(self) -> str:
        return f"{format_bytes(self.typical_bytes)} ({self.span})"

    @classmethod
    def of(cls, answer: Any) -> "Interval":
        """The interval of an answer's peak."""
        return cls(answer.low_bytes, answer.peak_bytes, answer.high_bytes)

    def as_peak(self) -> dict[str, Any]:
        """The fields of an answer's peak."""
        return {
            "peak_bytes": self.typical_bytes,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
        }

    @property
    def span(self) -> str:
        return f"{format_bytes(self.low_bytes)} to {format_bytes(self.high_bytes)}"

    @property
    def says_little(self) -> bool:
        return self.high_bytes > WIDE * self.low_bytes


NO_BYTES = Interval(0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What is different from the recorded run; None for no difference.

    Attributes:
        batch_size: Examples in a batch.
        capacity_bytes: The allocator's limit.
        freeze, unfreeze: Globs for paths of layers, separated by commas; see `matching`.
        optimizer: One of `SLOTS`.
        precision: One of `PRECISIONS`.
        frozen: Paths of layers to freeze, in addition to those that match `freeze`.
        accumulate: Whether the optimizer sums gradients over several batches.
        recompute: Segments of layers to recompute in the backward pass: the paths of each one's
            layers."""

    batch_size: int | None = None
    capacity_bytes: int | None = None
    freeze: str | None = None
    unfreeze: str | None = None
    optimizer: str | None = None
    precision: str | None = None
    frozen: tuple[str, ...] = ()
    accumulate: bool = False
    recompute: tuple[tuple[str, ...], ...] = ()

    def matching(self, layers: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
        """The layers that `freeze` and `unfreeze` match."""
        return matching(layers, self.freeze or ""), matching(layers, self.unfreeze or "")


RECORDED = Conditions()
"""As in the recorded run."""


def matching(layers: Sequence[Layer], globs: str) -> list[Layer]:
    """The layers with weights whose whole path matches one of the globs, which commas separate.

    Globs are those of `fnmatch`, case-sensitive: ``*`` matches any characters, also ``/``, ``[ab]``
    one of a set."""
    wanted = _split(globs)
    return [
        layer
        for layer in layers
        if layer.parameters and any(fnmatch.fnmatchcase(layer.path, one) for one in wanted)
    ]


def globs_of(paths: Sequence[str]) -> str | None:
    """Globs that match exactly these paths, separated by commas; None if too long, or if a path has
    a comma."""
    globs = ",".join(glob.escape(path) for path in paths)
    return None if len(globs) > MAX_GLOB_CHARACTERS or any("," in path for path in paths) else globs


def refuse_unmatched(conditions: Conditions, layers: Sequence[Layer]) -> None:
    """`RequestError` if no layer with weights matches a glob; it names the nearest path."""
    paths = [layer.path for layer in layers if layer.parameters]
    for name, globs in (("freeze", conditions.freeze), ("unfreeze", conditions.unfreeze)):
        for one in _split(globs or ""):
            if paths and not matching(layers, one):
                raise RequestError(
                    f"{name}: no layer with weights has a path like {one!r:.80}; the nearest is "
                    f"{_nearest(paths[:MAX_COMPARED], one)!r}. A glob matches the whole path, "
                    "and * matches any part of it",
                    name,
                )


def _nearest(paths: Sequence[str], wanted: str) -> str:
    """The first path that contains the glob's text, or else the most similar one."""
    text = re.sub(r"[*?\[\]]+", "", wanted)
    containing = next((path for path in paths if text in path), None)
    return containing or difflib.get_close_matches(text, paths, n=1, cutoff=0.0)[0]


def _split(globs: str) -> list[str]:
    return [one.strip() for one in globs.split(",") if one.strip()]


def checked_conditions(
    batch_size: int | None = None,
    capacity: int | str | None = None,
    freeze: Globs | None = None,
    unfreeze: Globs | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
) -> Conditions:
    """The conditions of a question, as `tb_memplugin.what_if` takes them; `RequestError` if one is
    malformed."""
    size = None if batch_size is None else _whole(batch_size)
    if batch_size is not None and (size is None or not 1 <= size <= MAX_BATCH_SIZE):
        message = (
            f"a batch size is an integer from 1 to {MAX_BATCH_SIZE:,}. Received: {batch_size!r:.80}"
        )
        raise RequestError(message, "batch_size")
    return Conditions(
        batch_size=size,
        capacity_bytes=None if capacity is None else capacity_bytes(capacity),
        freeze=_globs("freeze", freeze),
        unfreeze=_globs("unfreeze", unfreeze),
        optimizer=_one_of("optimizer", optimizer, tuple(SLOTS)),
        precision=_one_of("precision", precision, PRECISIONS),
    )


def capacity_bytes(capacity: int | str, name: str = "capacity", whole: int | None = None) -> int:
    """Bytes of a capacity, or of what else has this name: a text such as ``"24GiB"``, a number, or
    a share such as ``"60%"`` of a whole that is known; `RequestError` if it is no size from 1 B to
    1 PiB."""
    text = capacity.strip() if isinstance(capacity, str) else ""
    share, size = (
        parse_share(text),
        parse_bytes(text) if isinstance(capacity, str) else _whole(capacity),
    )
    if share is not None and whole is None:
        raise RequestError(f"{text}: the capacity is unknown. Pass a size such as 8GiB", name)
    if re.fullmatch(r"\d[\d.,_]*", text, re.ASCII):
        raise RequestError(f"{text:.20}: name a unit, for example 300MiB or 12GiB", name)
    size = size if share is None or whole is None else int(whole * share)
    if size is None or not 1 <= size <= MAX_CAPACITY_BYTES:
        raise RequestError(
            f"a {name} is {SIZE_RULE}, at most 1 PiB. Received: {capacity!r:.80}", name
        )
    return size


def _whole(number: Any) -> int | None:
    try:
        return None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        return None


def _globs(name: str, globs: Any) -> str | None:
    several = [globs] if isinstance(globs, str) or globs is None else globs
    if not isinstance(several, Collection) or not all(
        one is None or isinstance(one, str) for one in several
    ):
        raise RequestError(
            f"{name} is a glob for paths of layers, or a list of globs. Received: {globs!r:.80}",
            name,
        )
    text = ",".join(filter(None, several))
    if len(text) > MAX_GLOB_CHARACTERS:
        raise RequestError(
            f"{name} has at most {MAX_GLOB_CHARACTERS:,} characters. Received: {len(text):,}", name
        )
    return text or None


def _one_of(name: str, value: Any, known: Sequence[str]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value.lower() not in known:
        raise RequestError(f"{name} is one of {', '.join(known)}. Received: {value!r:.80}", name)
    return value.lower()

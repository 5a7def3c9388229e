"""The conditions of a prediction. Pure."""

import dataclasses
import difflib
import fnmatch
import glob
import re
from collections.abc import Sequence

from tb_memplugin.schema import Layer

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
        recompute: Segments of layers to recompute in the backward pass: the paths of each one's layers.
    """

    batch_size: int | None = None
    capacity_bytes: int | None = None
    freeze: str | None = None
    unfreeze: str | None = None
    optimizer: str | None = None
    precision: str | None = None
    frozen: tuple[str, ...] = ()
    accumulate: bool = False
    recompute: tuple[tuple[str, ...], ...] = ()

    @property
    def is_asked(self) -> bool:
        """Whether a user can ask for them, and so for the largest batch size under them. Others are parts of plans."""
        return not (self.frozen or self.accumulate or self.recompute)


RECORDED = Conditions()
"""As in the recorded run."""


def matching(layers: Sequence[Layer], globs: str) -> list[Layer]:
    """The layers with weights whose whole path matches one of the globs, which commas separate.

    Globs are those of `fnmatch`, case-sensitive: ``*`` matches any characters, ``/`` included, ``?`` any one, and
    ``[ab]`` one of a set.
    """
    wanted = _split(globs)
    return [
        layer for layer in layers if layer.parameters and any(fnmatch.fnmatchcase(layer.path, one) for one in wanted)
    ]


def globs_of(paths: Sequence[str]) -> str | None:
    """Globs that match exactly these paths, separated by commas; None if too long, or if a path has a comma."""
    globs = ",".join(glob.escape(path) for path in paths)
    return None if len(globs) > MAX_GLOB_CHARACTERS or any("," in path for path in paths) else globs


def unmatched(conditions: Conditions, layers: Sequence[Layer]) -> tuple[str, str] | None:
    """The condition with the first glob that no layer with weights matches, and a sentence on it with the nearest path;
    None without one."""
    paths = [layer.path for layer in layers if layer.parameters]
    for name, globs in (("freeze", conditions.freeze), ("unfreeze", conditions.unfreeze)):
        for one in _split(globs or ""):
            if paths and not matching(layers, one):
                return name, (
                    f"{name}: no layer with weights has a path like {one!r:.80}; the nearest is "
                    f"{_nearest(paths[:MAX_COMPARED], one)!r}. A glob matches the whole path, and * matches any part "
                    "of it"
                )
    return None


def _nearest(paths: Sequence[str], wanted: str) -> str:
    """The first path that contains the glob's text, or else the most similar one."""
    text = re.sub(r"[*?\[\]]+", "", wanted)
    containing = next((path for path in paths if text in path), None)
    return containing or difflib.get_close_matches(text, paths, n=1, cutoff=0.0)[0]


def _split(globs: str) -> list[str]:
    return [one.strip() for one in globs.split(",") if one.strip()]

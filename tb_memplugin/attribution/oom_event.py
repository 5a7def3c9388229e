"""A failed allocation, apart from the chunks at that time."""

import dataclasses

from tb_memplugin.model import OomStatus, Phase


@dataclasses.dataclass(frozen=True)
class OomEvent:
    """A failed allocation; fields as in `Oom`.

    Attributes:
        uncertain_bytes: By how much the actual request may be larger or smaller than `requested_bytes`.
        compiled: Whether a compiled module made the request, for all its layers at once.
    """

    identifier: str
    status: OomStatus
    device: str
    wall_time: float
    step: int | None = None
    phase: Phase | None = None
    requested_bytes: int | None = None
    op: str | None = None
    layer: str | None = None
    shape: str | None = None
    line: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False
    notes: tuple[str, ...] = ()

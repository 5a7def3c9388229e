"""Frames of parts of host memory."""

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import HOST_BYTES, MISSING, PHASES, HostSamples


def read_host(frame: Frame) -> HostSamples:
    """Read the rows of a frame of stream ``host``.

    Raises:
        FormatError: A column is missing or out of range, or the parts of a row exceed its resident memory.
    """
    table = fields.table_of(frame, "host")
    phase = fields.integers(table, "phase")
    fields.check_range("phase", phase, 0, len(PHASES) - 1)
    host = HostSamples(
        step=fields.steps_of(table),
        phase=phase,
        wall_time=fields.floats(table, "wall_time"),
        **{name: fields.byte_column(table, name) for name in HOST_BYTES},
    )
    known = host.resident_bytes != MISSING
    if (host.known_parts_bytes()[known] > host.resident_bytes[known]).any() or np.isinf(host.wall_time).any():
        raise FormatError("parts of host memory exceed its resident memory")
    return host

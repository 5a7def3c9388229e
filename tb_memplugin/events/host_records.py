"""Frames of the parts of host memory."""

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import HOST_BYTES, HOST_COLUMNS, MISSING, PHASES, HostSamples


def host_frame(host: HostSamples, sequence: int) -> Frame:
    """Frame of one or more rows."""
    table = {name: getattr(host, name) for name in HOST_COLUMNS}
    return fields.make_frame("host", sequence, host.step, {}, {"host": table})


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

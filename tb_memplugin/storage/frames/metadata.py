"""Names, tags and summary metadata of events, shared by writers and readers, and the numbers of
frames.

Tags are ``<stream>/<session>/<number>``. At most ``EVENTS_PER_TAG`` events share a tag, because
TensorBoard may keep only ten randomly sampled events per tag."""

import calendar
import dataclasses
import re
import secrets
import time
from typing import Any

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

from tb_memplugin.version import PLUGIN_NAME

DIRECTORY_NAME = "memory"
"""Subdirectory of a run for the plugin's event files; the run is shown under its parent's name."""

EVENTS_PER_TAG = 8
"""Events per tag; below 10, the smallest default sample size of any reader."""

STREAMS = (
    *("meta", "samples", "activations", "snapshots", "peak", "maps"),
    *("oom", "timelines", "requests", "counters", "host", "rollups"),
)
"""Streams of a session. `meta`: session facts and layer tables; `samples`: per-step allocator
figures; `activations`: activation bytes by layer over steps; `snapshots`: ledgers of traced steps;
`peak`: the sample of the highest peak so far; `maps`: memory maps of traced steps; `oom`: failed
allocations; `timelines`: live allocations inside traced steps; `requests`: all requests of a traced
step, for its replay; `counters`: what the program built and traced; `rollups`: all of the session
so far in a record of bounded size. `host` is written no more. Append new streams: frames store the
index."""

_TAG = re.compile(r"(?P<stream>[a-z]+)/(?P<session>[0-9A-Za-z_-]{1,64})/(?P<number>[0-9]{1,9})")


@dataclasses.dataclass(frozen=True, order=True)
class Tag:
    session: str
    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.session}/{self.number}"


def parse_tag(text: str) -> Tag | None:
    match = _TAG.fullmatch(text)
    if match is None or match["stream"] not in STREAMS:
        return None
    return Tag(match["session"], match["stream"], int(match["number"]))


def run_name(event_run: str) -> tuple[str, str]:
    """Split TensorBoard's run name of an event file into (run, worker).

    ``exp1/memory`` is run ``exp1``, worker ``""``; ``exp1/memory/worker_3`` is run ``exp1``, worker
    ``worker_3``; ``memory`` alone is run ``.``; any other name is a run written through a user's
    summary writer."""
    parts = event_run.replace("\\", "/").split("/")
    for at in range(len(parts) - 1, max(len(parts) - 3, -1), -1):
        if parts[at] == DIRECTORY_NAME:
            return "/".join(parts[:at]) or ".", "/".join(parts[at + 1 :])
    return event_run, ""


def summary_metadata(
    name: str = PLUGIN_NAME, kind: int = summary_pb2.DATA_CLASS_TENSOR
) -> summary_pb2.SummaryMetadata:
    """Metadata of every event: plugin name and tensor data class, which make TensorBoard's readers
    keep the event."""
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=name)
    return summary_pb2.SummaryMetadata(plugin_data=data, data_class=kind)


def frame_summary(tag: Tag, frame: bytes) -> summary_pb2.Summary:
    return _summary(str(tag), summary_metadata(), dtype=types_pb2.DT_STRING, string_val=[frame])


def scalar_summary(tag: str, value: float) -> summary_pb2.Summary:
    """A value for TensorBoard's Scalars and HParams dashboards; this package's readers ignore
    it."""
    # TensorBoard's fast reader drops other types; the value is rounded to 24 bits, 1 KiB for 16
    # GiB.
    metadata = summary_metadata("scalars", summary_pb2.DATA_CLASS_SCALAR)
    return _summary(tag, metadata, dtype=types_pb2.DT_FLOAT, float_val=[value])


def _summary(tag: str, metadata: summary_pb2.SummaryMetadata, **values: Any) -> summary_pb2.Summary:
    tensor = tensor_pb2.TensorProto(tensor_shape=tensor_shape_pb2.TensorShapeProto(), **values)
    return summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]
    )


_START = "%Y%m%dT%H%M%SZ"


def new_session_id() -> str:
    """A new identifier that sorts by start time and identifies neither machine nor person."""
    return time.strftime(_START, time.gmtime()) + "-" + secrets.token_hex(4)


def start_of(session: str) -> float | None:
    """The start in an identifier of `new_session_id`, in whole seconds since the epoch; None for
    others."""
    try:
        return float(calendar.timegm(time.strptime(session.partition("-")[0], _START)))
    except ValueError:
        return None


@dataclasses.dataclass
class TagRotation:
    """Numbers the frames of one stream of one session. One writer owns it."""

    session: str
    stream: str
    sequence: int = 0
    _number: int = 0
    _in_tag: int = 0
    _last_step: int = -1

    def next(self, step: int) -> Tag:
        """The tag of the next frame, whose event has step `step`; adds one to `sequence`.

        A step that is not larger than the last one starts a new tag: TensorBoard's fast reader
        would delete the events of the old tag from that step on."""
        if self._in_tag and (self._in_tag >= EVENTS_PER_TAG or step <= self._last_step):
            self._number += 1
            self._in_tag = 0
        self._in_tag += 1
        self._last_step = step
        self.sequence += 1
        return Tag(self.session, self.stream, self._number)

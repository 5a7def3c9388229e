"""The hinge between writers and readers: names, versions, tags, and the summary metadata of every event.

Writers and readers both import this module and never each other. Tags are ``<stream>/<session>/<number>``; at most
``EVENTS_PER_TAG`` events share a tag, because TensorBoard keeps as few as ten events of a tag and drops the rest at
random.
"""

import dataclasses
import re

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

PLUGIN_NAME = "tb_memplugin"
"""Name under which TensorBoard knows the plugin: in event metadata, in URLs and in the page's address."""

DIRECTORY_NAME = "memory"
"""Sub-directory of a run that holds the plugin's own event files; the run is shown under its parent's name."""

EVENTS_PER_TAG = 8
"""Events written to one tag before the next tag is begun; below 10, the smallest default reservoir of any reader."""

STREAMS = ("meta", "samples", "activations", "snapshots", "peak", "maps", "oom", "timelines")
"""Streams of a session. `meta`: session facts and layer tables; `samples`: per-step allocator figures;
`activations`: per-layer bytes over steps; `snapshots`: ledgers of traced steps; `peak`: the sample of the highest peak
so far; `maps`: allocator maps of traced steps; `oom`: post-mortems; `timelines`: what was live inside
traced steps. New streams go to the end: frames name theirs by
number."""

_TAG = re.compile(r"(?P<stream>[a-z]+)/(?P<session>[0-9A-Za-z_-]{1,64})/(?P<number>[0-9]{1,9})")


@dataclasses.dataclass(frozen=True, order=True)
class Tag:
    """A parsed tag. `session` sorts by start time; `number` counts tags of one stream of one session from 0."""

    session: str
    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.session}/{self.number}"


def parse_tag(text: str) -> Tag | None:
    """The parsed tag, or None if `text` is not a tag of this plugin."""
    match = _TAG.fullmatch(text)
    if match is None or match["stream"] not in STREAMS:
        return None
    return Tag(match["session"], match["stream"], int(match["number"]))


def run_name(event_run: str) -> tuple[str, str]:
    """Splits TensorBoard's run of an event file into (run, worker).

    ``exp1/memory`` is run ``exp1``, worker ``""``; ``exp1/memory/worker_3`` is run ``exp1``, worker ``worker_3``;
    ``memory`` alone is run ``.``; any other name is a run of its own, written through a user's writer.
    """
    parts = event_run.replace("\\", "/").split("/")
    for at in range(len(parts) - 1, max(len(parts) - 3, -1), -1):
        if parts[at] == DIRECTORY_NAME:
            return "/".join(parts[:at]) or ".", "/".join(parts[at + 1 :])
    return event_run, ""


def summary_metadata() -> summary_pb2.SummaryMetadata:
    """Metadata of every event: this plugin, tensor class, so that TensorBoard's readers keep the event."""
    return summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name=PLUGIN_NAME),
        data_class=summary_pb2.DATA_CLASS_TENSOR,
    )


def frame_summary(tag: Tag, frame: bytes) -> summary_pb2.Summary:
    """The summary that carries one frame: a scalar string tensor under `tag`."""
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, tensor_shape=tensor_shape_pb2.TensorShapeProto(), string_val=[frame]
    )
    return summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=str(tag), metadata=summary_metadata(), tensor=tensor)]
    )

"""FACE."""

from tb_memplugin.recorder.failure.failure_maps import POLL_SECONDS, FailureMaps
from tb_memplugin.recorder.failure.failures import RaisedError, is_forward, memory_request, raised_now
from tb_memplugin.recorder.failure.post_mortems import OomWatch, OwnedMap, Place, Replay
from tb_memplugin.recorder.failure.raised_errors import raised_errors

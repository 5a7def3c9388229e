"""Failed allocations: notices them as TensorFlow makes their exceptions, finds the memory map of
the failure and the owners of its chunks, and makes the post-mortem. Exceptions, TensorFlow's dumps
and the chunks of traced steps come in; `Oom` records go out. Called by the recorder's loop, by
`tracing` and, for the request alone, by probes."""

from tb_memplugin.recorder.failure.dumps import POLL_SECONDS, FailureMaps, dump_files
from tb_memplugin.recorder.failure.post_mortems import OomWatch, Place, Replay
from tb_memplugin.recorder.failure.raised import (
    RaisedError,
    causes,
    memory_request,
    raised_errors,
    raised_now,
)
from tb_memplugin.recorder.failure.uncaught import uncaught_failures

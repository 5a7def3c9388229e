"""The recorder's loop: steps come in, from hooks of Keras (`MemoryCallback`) or of the program's
own loop (`MemoryRecorder`); rows, layer tables, results of traced steps, counters and post-mortems
go out to the run's event file, on the background thread. Also `memory_summary`, and the writer of
`tb_memplugin.summary`. Called by the program that trains, by `recorder.automatic` and by probes."""

from tb_memplugin.environment import keras_backend
from tb_memplugin.recorder.loop.callback import MemoryCallback
from tb_memplugin.recorder.loop.contents import memory_summary
from tb_memplugin.recorder.loop.recorder import MemoryRecorder
from tb_memplugin.recorder.loop.session import is_recording
from tb_memplugin.recorder.loop.summary_writer import SummaryWriter, recording_writer

if keras_backend() == "jax":
    from tb_memplugin.recorder.loop.jax_modules import Compiled, serialized
    from tb_memplugin.recorder.loop.jax_session import JaxSession, device_name

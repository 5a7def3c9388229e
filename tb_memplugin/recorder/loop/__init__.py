"""FACE."""

from tb_memplugin.recorder.loop.callback import MemoryCallback
from tb_memplugin.recorder.loop.memory_recorder import MemoryRecorder
from tb_memplugin.recorder.loop.memory_summary import memory_summary
from tb_memplugin.recorder.loop.summary_writer import SummaryWriter, recording_writer

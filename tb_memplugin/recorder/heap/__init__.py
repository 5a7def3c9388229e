"""FACE."""

from tb_memplugin.recorder.heap.held_tensors import DeviceFacts, HeldTensors, ReadChunks
from tb_memplugin.recorder.heap.holders import kept_objects
from tb_memplugin.recorder.heap.reachability import unreachable
from tb_memplugin.recorder.heap.release import release_unused

"""FACE."""

from tb_memplugin.recorder.devices import statistics
from tb_memplugin.recorder.devices.framework import LOG_LEVEL, check_switch, open_library
from tb_memplugin.recorder.devices.host import Driver, DriverFigures, ResidentMemory
from tb_memplugin.recorder.devices.mapped_memory import MappedMemory
from tb_memplugin.recorder.devices.memory_maps import PINNED, MemoryMaps, resource_handle_bytes
from tb_memplugin.recorder.devices.ordinary_steps import Clock, OrdinarySteps, PassedSteps
from tb_memplugin.recorder.devices.sample_buffer import SAMPLE_INTEGERS, SampleBuffer
from tb_memplugin.recorder.devices.statistics import Device, Statistics, choose_devices, memory_info

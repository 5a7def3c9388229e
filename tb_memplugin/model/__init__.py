"""The contents of a run as plain immutable data, without TensorFlow, TensorBoard or HTTP.

Fields named ``_bytes`` are sizes in bytes. ``None`` means "unknown", never zero. Steps count training steps from 0.
"""

from tb_memplugin.model.basics import MAX_STEP, MISSING, MODES, PHASES, Floats, Integers, Mode, Phase, is_cpu, is_gpu
from tb_memplugin.model.host import HOST_ALLOCATED, HOST_BYTES, HOST_COLUMNS, HOST_PARTS, HostMemory, HostSamples
from tb_memplugin.model.layers import Layer, LayerTable
from tb_memplugin.model.memory_map import (
    FREE,
    IN_USE,
    OWNER_SOURCES,
    UNKNOWN_STATE,
    ChunkOwner,
    MemoryMap,
    OwnerSource,
)
from tb_memplugin.model.oom import FIX_KINDS, OOM_STATUSES, VERDICTS, Fix, FixKind, Oom, OomStatus, Verdict
from tb_memplugin.model.requests import SCRATCH_POWER, UNKNOWN_POWER, StepRequests
from tb_memplugin.model.run import COUNTER_KINDS, CounterKind, Counters, Run, Session, SessionInfo, with_layers_of
from tb_memplugin.model.samples import (
    DeviceSamples,
    LayerActivations,
    Samples,
    full_device_name,
    take_figures,
    take_samples,
)
from tb_memplugin.model.snapshot import (
    CATEGORIES,
    GRADIENTS,
    PERSISTENT,
    Category,
    HeldTensorGroup,
    LedgerRow,
    Pool,
    Replay,
    SavedRow,
    Snapshot,
    pool_of,
    stack_order,
)
from tb_memplugin.model.tensors import TensorShape
from tb_memplugin.model.timeline import BAND_NAMES, Band, BandName, CompiledSpan, Timeline

__all__ = [
    "BAND_NAMES",
    "CATEGORIES",
    "COUNTER_KINDS",
    "FIX_KINDS",
    "FREE",
    "GRADIENTS",
    "HOST_ALLOCATED",
    "HOST_BYTES",
    "HOST_COLUMNS",
    "HOST_PARTS",
    "IN_USE",
    "MAX_STEP",
    "MISSING",
    "MODES",
    "OOM_STATUSES",
    "OWNER_SOURCES",
    "PERSISTENT",
    "PHASES",
    "SCRATCH_POWER",
    "UNKNOWN_POWER",
    "UNKNOWN_STATE",
    "VERDICTS",
    "Band",
    "BandName",
    "Category",
    "ChunkOwner",
    "CompiledSpan",
    "CounterKind",
    "Counters",
    "DeviceSamples",
    "Fix",
    "FixKind",
    "Floats",
    "HeldTensorGroup",
    "HostMemory",
    "HostSamples",
    "Integers",
    "Layer",
    "LayerActivations",
    "LayerTable",
    "LedgerRow",
    "MemoryMap",
    "Mode",
    "Oom",
    "OomStatus",
    "OwnerSource",
    "Phase",
    "Pool",
    "Replay",
    "Run",
    "Samples",
    "SavedRow",
    "Session",
    "SessionInfo",
    "Snapshot",
    "StepRequests",
    "TensorShape",
    "Timeline",
    "Verdict",
    "full_device_name",
    "is_cpu",
    "is_gpu",
    "pool_of",
    "stack_order",
    "take_figures",
    "take_samples",
    "with_layers_of",
]

"""The devices' memory as TensorFlow, its allocators and the system state it: which devices to
record, a row of figures per step and the buffer in which rows wait, and the allocators' memory
maps, read through TensorFlow's C++ library. The recorder's loop samples with it, `tracing` and
`failure` read maps; Python code that measures once calls it as well."""

from tb_memplugin.recorder.devices import statistics
from tb_memplugin.recorder.devices.memory_maps import (
    PINNED,
    MappedMemory,
    MemoryMaps,
    exported_names,
    open_library,
    resource_handle_bytes,
    tensor_address,
)
from tb_memplugin.recorder.devices.samples import (
    Clock,
    FastPath,
    PassedSteps,
    ResidentMemory,
    Sample,
    SampleBuffer,
    Sampler,
)
from tb_memplugin.recorder.devices.statistics import (
    Device,
    Driver,
    choose_devices,
    eagerly,
    keep_peak,
    memory_info,
)

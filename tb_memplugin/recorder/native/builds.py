"""TensorFlow builds with a readable memory map, and the symbols that the recorder calls.

All symbols are in ``libtensorflow_framework.so.2``. Their names, as ``nm -D --defined-only`` prints them, are the same
in every version below, but for `LOG_LEVEL`: the allocator is in namespace ``tsl``, everything else in ``tensorflow``.
No function takes or returns a ``std::string``.
"""

TESTED_VERSIONS = (
    "2.16.1",
    "2.16.2",
    "2.17.0",
    "2.17.1",
    "2.18.0",
    "2.18.1",
    "2.19.0",
    "2.19.1",
    "2.20.0",
    "2.21.0",
)
"""Values of `tf.__version__` with which `tests/integration/test_memory_maps.py` passed: the `tensorflow` wheels on PyPI
for Linux x86-64, which include the CUDA code, and `tensorflow-cpu` 2.21.0; with a BFC allocator on CPU:0."""

MACHINES = ("x86_64",)
"""Machines that pass the address of a returned object as the first argument. AArch64 passes it in register x8, which
ctypes cannot set."""

LIBRARY = "libtensorflow_framework.so.2"

RECORD = "_ZN3tsl12BFCAllocator15RecordMemoryMapEv"
"""``tensorflow::MemoryDump tsl::BFCAllocator::RecordMemoryMap()``"""
BYTE_SIZE = "_ZNK10tensorflow10MemoryDump12ByteSizeLongEv"
"""``size_t tensorflow::MemoryDump::ByteSizeLong() const``"""
SERIALIZE = "_ZNK6google8protobuf11MessageLite16SerializeToArrayEPvi"
"""``bool google::protobuf::MessageLite::SerializeToArray(void*, int) const``"""
DESTROY = "_ZN10tensorflow10MemoryDumpD1Ev"
"""``tensorflow::MemoryDump::~MemoryDump()``, the complete object destructor: it does not free the object's own bytes"""
DUMP_VTABLE = "_ZTVN10tensorflow10MemoryDumpE"

CPU_STATE = "_ZN10tensorflow12ProcessState9singletonEv"
"""``static ProcessState* tensorflow::ProcessState::singleton()``"""
CPU_ALLOCATOR = "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
"""``Allocator* tensorflow::ProcessState::GetCPUAllocator(int numa_node)``"""

GPU_STATE = "_ZN10tensorflow15GPUProcessState9singletonEPS0_"
"""``static GPUProcessState* tensorflow::GPUProcessState::singleton(GPUProcessState* ps = nullptr)``"""
GPU_ALLOCATOR = (
    "_ZN10tensorflow15GPUProcessState15GetGPUAllocatorERKNS_10GPUOptionsEN3tsl3gtl7IntTypeINS4_15TfDeviceId_tag_EiEEm"
    "RKSt6vectorIS8_SaIS8_EE"
)
"""``Allocator* tensorflow::GPUProcessState::GetGPUAllocator(const GPUOptions&, TfDeviceId, size_t total_bytes, const
std::vector<TfDeviceId>& peer_gpu_ids)``"""
GPU_OPTIONS = "_ZN10tensorflow29_GPUOptions_default_instance_E"
"""The default ``tensorflow::GPUOptions``"""

GPU_HOST_ALLOCATOR = "_ZN10tensorflow15GPUProcessState19GetGpuHostAllocatorERKNS_10GPUOptionsEi"
"""``Allocator* tensorflow::GPUProcessState::GetGpuHostAllocator(const GPUOptions&, int numa_node)``"""

BFC_TYPES = ("N3tsl12BFCAllocatorE", "N10tensorflow15GPUBFCAllocatorE")
"""``typeid(allocator).name()`` of ``tsl::BFCAllocator`` and its subclass, for which it is the only base, so that both
have the same address. MklCPUAllocator is not among them: it has a BFC allocator as a member."""

LOG_LEVEL = {
    "2.21.0": (
        "_ZN4absl12lts_2025081411MinLogLevelEv",
        "_ZN4absl12lts_2025081414SetMinLogLevelENS0_18LogSeverityAtLeastE",
    )
}
"""By version: ``absl::LogSeverityAtLeast absl::MinLogLevel()`` and ``void absl::SetMinLogLevel(LogSeverityAtLeast)``.

The type is an enumeration of `int`. Before 2.21 TensorFlow's own logging read its lowest level once, for good.
"""

"""When the memory map is not read, and the warnings then, with fakes of TensorFlow's library."""

import contextlib
import ctypes
import os
import pathlib
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from dump_cases import CHUNKS, Chunk, make_dump

from tb_memplugin.recorder.devices import PINNED, MappedMemory, MemoryMaps, exported_names
from tb_memplugin.recorder.devices import memory_maps as framework
from tb_memplugin.recorder.devices.memory_maps import MAX_DISAGREEMENTS, Framework, UnreadableError
from tb_memplugin.recorder.tracing.profiler import _GET, _SET

IN_USE = 1536
DEVICE = "GPU:0"
LIBRARY = "/lib/libtensorflow_framework.so.2"


class Library:
    """A fake `Framework`: returns one dump after another, then always the last one."""

    def __init__(self, *dumps: bytes | Exception) -> None:
        self.dumps = list(dumps)
        self.reads = 0

    def memory_map(self, allocator: int) -> bytes:
        assert allocator == 0x1000
        self.reads += 1
        dump = self.dumps.pop(0) if len(self.dumps) > 1 else self.dumps[0]
        if isinstance(dump, Exception):
            raise dump
        return dump


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> Callable[..., MemoryMaps]:
    """Makes `MemoryMaps` over a fake library; `in_use` are the statistics' figures in turn."""
    monkeypatch.delenv(framework.SWITCH, raising=False)
    config = SimpleNamespace(list_logical_devices=list)
    monkeypatch.setitem(
        sys.modules, "tensorflow", SimpleNamespace(__version__="3.0.0-odd", config=config)
    )
    monkeypatch.setattr(framework, "_checked", {DEVICE})
    monkeypatch.setattr(
        framework, "MappedMemory", lambda: MappedMemory(f"1000-2000 r--p 0 0:0 1 {LIBRARY}")
    )
    monkeypatch.setattr(framework.ctypes, "CDLL", lambda *_, **__: None)

    def make(
        library: Any, in_use: Iterator[int] | int = IN_USE, devices: tuple[str, ...] = (DEVICE,)
    ) -> MemoryMaps:
        def figures(_: str) -> tuple[int, int]:
            return (in_use if isinstance(in_use, int) else next(in_use)), 0

        monkeypatch.setattr(framework.allocator_figures, "memory_info", figures)
        monkeypatch.setattr(framework, "Framework", lambda _: library)
        monkeypatch.setattr(framework, "find_allocator", lambda *_: 0x1000)
        return MemoryMaps(devices, warnings.append)

    return make


def test_repeated_disagreement_turns_it_off_once(make: Any, warnings: list[str]) -> None:
    library = Library(make_dump())
    maps = make(library, IN_USE + 256)
    assert [maps.read(DEVICE) for _ in range(10)] == [None] * 10
    assert not maps.available(DEVICE) and library.reads == MAX_DISAGREEMENTS
    assert warnings == [
        "Not reading the memory map of GPU:0: its chunks in use sum to 1536 bytes, but "
        "TensorFlow's statistics say 1792. Chunk sizes are rounded requests instead."
    ]


def test_other_threads_that_allocate_meanwhile_do_not_turn_it_off(
    make: Any, warnings: list[str]
) -> None:
    changing = iter([*range(0, 2000, 10), IN_USE, IN_USE])
    maps = make(Library(make_dump(in_use=1)), changing)
    read = [maps.read(DEVICE) for _ in range(20)]  # after one that `MemoryMaps` makes itself
    assert read[:19] == [None] * 19 and read[19] == make_dump(in_use=1) and not warnings


@pytest.mark.parametrize(
    ("dump", "said"),
    [(make_dump(b"GPU_1_bfc"), "returned the map of GPU:1 instead"), (b"\xff\xff", "do not parse")],
)
def test_another_map_turns_it_off(make: Any, warnings: list[str], dump: bytes, said: str) -> None:
    maps = make(Library(dump))
    assert maps.read(DEVICE) is None and not maps.available(DEVICE)
    assert said in warnings[0]


PINNED_DUMP = make_dump(b"gpu_host_bfc")


@pytest.mark.parametrize(
    ("dump", "reason"),
    [
        (PINNED_DUMP, None),  # which agrees with its own statistics
        (
            make_dump(b"gpu_host_bfc", in_use=7),
            "its chunks in use sum to 1536 bytes, but its statistics say 7",
        ),
        (make_dump(b"GPU_0_bfc"), "TensorFlow returned the map of GPU:0 instead"),
    ],
)
def test_a_map_of_pinned_memory_is_compared_with_its_own_statistics_and_leaves_the_devices_maps_alone(
    make: Any, warnings: list[str], dump: bytes, reason: str | None
) -> None:
    # GIVEN statistics of the device alone: TensorFlow has none of pinned memory
    dumps = [make_dump(), dump, *[dump] * (reason is None), make_dump()]
    maps = make(Library(*dumps), iter([IN_USE, IN_USE]), devices=(DEVICE, PINNED))
    assert maps.read(PINNED) == (None if reason else dump) and maps.available(PINNED) is (
        reason is None
    )
    assert maps.read(DEVICE) == make_dump()
    assert warnings == [f"Not measuring pinned host memory: {reason}."] * bool(reason)


@pytest.mark.parametrize("error", [ValueError("odd"), UnreadableError("odd"), MemoryError("odd")])
def test_read_raises_no_fault(make, warnings, monkeypatch, error) -> None:
    maps = make(Library(make_dump(), make_dump(), error))
    assert maps.read(DEVICE) is not None
    assert maps.read(DEVICE) is None and maps.read(DEVICE) is None
    assert len(warnings) == 1 and "odd" in warnings[0]
    # AND none of a warning
    maps = make(Library(make_dump(), error))
    monkeypatch.setattr(maps, "_warn", lambda _: 1 / 0)
    assert maps.read(DEVICE) is None and not maps.available(DEVICE)


def test_the_switch_turns_it_off_for_all_devices_with_one_warning(
    make, warnings, monkeypatch
) -> None:
    monkeypatch.setenv(framework.SWITCH, "0")
    library = Library(make_dump())
    maps = make(library, devices=("GPU:0", "GPU:1"))
    assert maps.read("GPU:0") is None and maps.read("GPU:1") is None and library.reads == 0
    assert warnings == [
        "Not reading the memory map of GPU:0, GPU:1: TB_MEMPLUGIN_MEMORY_MAP=0 is set. "
        "Chunk sizes are rounded requests instead."
    ]


def test_without_devices_and_in_a_forked_child_nothing_is_read_or_reported(
    make, monkeypatch, warnings
) -> None:
    library = Library(make_dump())
    none, maps = MemoryMaps([], warnings.append), make(library)
    assert none.read(DEVICE) is None and not none.available(DEVICE)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert (
        maps.read(DEVICE) is None
        and not maps.available(DEVICE)
        and library.reads == 1
        and not warnings
    )


SIZES = framework.PROBE_BYTES
PROBES: list[Chunk] = [(0x9400 + 512 * place, 512, size, True) for place, size in enumerate(SIZES)]
REST: Chunk = (0x9A00, 2560, 0, False)


class Tensors:
    """A fake of TensorFlow: each tensor lies at the address of the next chunk of `PROBES`."""

    def __init__(self) -> None:
        self.raw_ops = self
        self.made: list[int] = []
        self.config = SimpleNamespace(list_logical_devices=list)

    def init_scope(self) -> Any:
        return contextlib.nullcontext()

    def device(self, name: str) -> Any:
        assert name == DEVICE
        return contextlib.nullcontext()

    def Empty(self, shape: Any, dtype: Any) -> int:  # noqa: N802
        self.made.append(4 * int(shape[0]))
        return PROBES[SIZES.index(self.made[-1])][0]

    float32 = "float32"


def changed(place: int, chunk: Chunk) -> bytes:
    return make_dump(listed=[*CHUNKS[:3], *PROBES[:place], chunk, *PROBES[place + 1 :], REST])


@pytest.mark.parametrize(
    ("used", "left", "reason"),
    [
        (changed(0, PROBES[0]), make_dump(), None),
        (
            changed(1, (0x9600, 512, 299, True)),
            make_dump(),
            "299 requested bytes in use at the address of a tensor of 3",
        ),
        (
            changed(1, (0x9600, 512, 300, False)),
            make_dump(),
            "no requested bytes in use at the address of a tensor of 3",
        ),
        (make_dump(), make_dump(), "no requested bytes in use at the address of a tensor of 100"),
        (
            changed(0, PROBES[0]),
            changed(0, PROBES[0]),
            "shows a freed tensor of 100 bytes as in use",
        ),
    ],
)
def test_only_a_map_that_shows_known_tensors_while_they_exist_is_used(
    make: Any,
    warnings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    used: bytes,
    left: bytes,
    reason: str | None,
) -> None:
    library = Library(make_dump(), *[used, left] * framework.ATTEMPTS)
    monkeypatch.setattr(framework, "tensor_address", lambda tensor: tensor)
    make(library, devices=())  # puts the fakes in place
    monkeypatch.setattr(framework, "_checked", set())
    tensorflow = Tensors()
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    maps = MemoryMaps([DEVICE, *[PINNED] * (reason is not None)], warnings.append)
    # THEN it is off for pinned memory as well, which cannot be checked
    assert maps.available(DEVICE) is (reason is None) and not maps.available(PINNED)
    assert len(tensorflow.made) == len(SIZES) * (1 if reason is None else framework.ATTEMPTS)
    if reason is None:
        assert not warnings and framework._checked == {DEVICE}
    else:
        (sentence,) = warnings
        assert (
            sentence.startswith("Not reading the memory map of GPU:0: it ") and reason in sentence
        )


def test_other_threads_that_take_freed_memory_do_not_fail_the_self_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", Tensors())
    monkeypatch.setattr(framework, "tensor_address", lambda tensor: tensor)
    used = changed(0, PROBES[0])
    dumps = iter([used, used, make_dump(), make_dump(), used, make_dump()])
    framework.self_check(lambda: next(dumps), DEVICE)
    assert next(dumps, None) is None


def test_the_self_check_waits_for_a_free_chunk(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(framework, "self_check", lambda _, device: checked.append(device))
    full, free = make_dump(listed=CHUNKS[:3]), make_dump()
    make(Library(full), devices=())
    monkeypatch.setattr(framework, "_checked", set())
    maps = make(Library(full, full, free))
    assert maps.read(DEVICE) is None and maps.available(DEVICE) and not checked
    assert maps.read(DEVICE) == free and checked == [DEVICE]
    # AND is made once in a process
    assert make(Library(free)).read(DEVICE) == free and checked == [DEVICE]


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "x86_64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_other_systems_and_machines_are_refused(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(UnreadableError, match="on Linux x86-64 only"):
        framework.open_library(MappedMemory(""))


def elf(*names: bytes) -> bytes:
    """A 64-bit ELF file with these dynamic symbols, and the same ones with another end outside of
    their table."""
    table = b"\0" + b"\0".join(names) + b"\0"
    begin = 64 + 3 * 64
    sections = [(0, 0), (11, 2), (3, 0)]  # none, SHT_DYNSYM, its names
    head = (
        b"\x7fELF\x02\x01".ljust(0x28, b"\0")
        + struct.pack("<Q", 64)
        + bytes(10)
        + struct.pack("<HH", 64, 3)
    )
    rows = [
        struct.pack("<IIQQQQI", 0, kind, 0, 0, begin, len(table), link).ljust(64, b"\0")
        for kind, link in sections
    ]
    return (
        head.ljust(64, b"\0") + b"".join(rows) + table + b"_ZN4absl12lts_2099010111MinLogLevelEv\0"
    )


def test_symbols_with_another_date_are_found_in_the_library(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "library.so"
    ends = (b"11MinLogLevelEv", b"14SetMinLogLevelENS0_18LogSeverityAtLeastE")
    names = [b"_ZN4absl12lts_20260526" + end for end in ends]
    file.write_bytes(elf(b"_ZN4absl4FailEv", *names, b"_ZN4absl12lts_2026052611MinLogLevelEvX"))
    for name, pattern in zip(names, (_GET, _SET), strict=True):
        assert exported_names(str(file), pattern) == {name.decode()}
    file.write_bytes(elf(b"_ZN4absl4FailEv"))
    assert exported_names(str(file), _GET) == set()
    file.write_bytes(b"#!/bin/sh\n")
    assert exported_names(str(file), _GET) == set()


def test_a_library_without_a_symbol_and_a_process_without_the_library_are_refused(
    monkeypatch,
) -> None:
    with pytest.raises(UnreadableError, match="lacks _ZN3tsl12BFCAllocator15RecordMemoryMapEv"):
        Framework(ctypes.CDLL("libm.so.6"))
    with pytest.raises(UnreadableError, match="0 files named libtensorflow_framework"):
        framework.open_library(MappedMemory("1000-2000 r--p 0 0:0 1 /lib/libm.so.6\n"))


class FakeFramework(Framework):
    """`Framework` over Python functions with the same calling convention."""

    def __init__(self, vptr: int = 16, moved: int = 0, size: int = 3) -> None:
        self.vptr, self.moved, self.size = vptr, moved, size
        self.destroyed: list[int] = []
        super().__init__(ctypes.CDLL(None))

    def _address(self, symbol: str) -> int:
        return 0

    def _function(self, symbol: str, result: Any, *arguments: Any, waits: bool = True) -> Any:
        def record(at: int, allocator: int) -> int:
            ctypes.c_uint64.from_address(at).value = self.vptr
            return at + self.moved

        def serialize(at: int, data: int, size: int) -> bool:
            ctypes.memmove(data, b"map", size)
            return True

        return {
            framework.RECORD: record,
            framework.BYTE_SIZE: lambda at: self.size,
            framework.SERIALIZE: serialize,
            framework.DESTROY: self.destroyed.append,
        }[symbol]


@pytest.mark.parametrize(
    ("wrong", "said", "destroyed"),
    [
        ({}, None, 1),
        ({"vptr": 24}, "did not return a memory map", 0),
        ({"moved": 8}, "did not return a memory map", 0),
        ({"size": 1 << 30}, "takes 1073741824 bytes", 1),
    ],
)
def test_an_object_is_destroyed_after_it_was_read_or_is_too_large_and_not_touched_if_it_is_another(
    wrong: dict[str, int], said: str | None, destroyed: int
) -> None:
    library = FakeFramework(**wrong)
    if said is None:
        assert library.memory_map(0) == b"map"
    else:
        with pytest.raises(UnreadableError, match=said):
            library.memory_map(0)
    assert len(library.destroyed) == destroyed


class Object:
    """A C++ object laid out by hand, with a vtable, type information and a listing of its
    mappings."""

    def __init__(self, name: bytes, offset_to_top: int = 0, file: str = LIBRARY) -> None:
        self.words = (ctypes.c_uint64 * 8)()
        self.name = ctypes.create_string_buffer(name)
        self.address = ctypes.addressof(self.words)
        # object: vptr | vtable: offset to top, type, first function | type: its own vptr, name
        vptr, type_information = self.address + 24, self.address + 40
        self.words[:] = [
            vptr,
            offset_to_top % 2**64,
            type_information,
            0,
            0,
            0,
            ctypes.addressof(self.name),
            0,
        ]
        spans = [(self.address, 64), (ctypes.addressof(self.name), len(name) + 1)]
        self.memory = MappedMemory(
            "".join(
                f"{start:x}-{start + size:x} r--p 0 0:0 1 {file}\n" for start, size in sorted(spans)
            )
        )


def allocators_at(address: int) -> Any:
    """A fake `Framework`: one object is the allocator of every device."""
    kinds = ("cpu_allocator", "gpu_allocator", "gpu_host_allocator")
    return mock.Mock(**{f"{kind}.return_value": address for kind in kinds})


@pytest.mark.parametrize("name", framework.BFC_TYPES)
def test_a_bfc_allocator_is_recognized_by_its_vtable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Object(name.encode())
    fake = allocators_at(made.address)
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "1")
    monkeypatch.setattr(framework, "cuda_devices", lambda: ["GPU:0", "GPU:1"])
    monkeypatch.delenv("TF_GPU_ALLOCATOR", raising=False)
    for device in ("CPU:0", "GPU:1", PINNED):
        assert framework.find_allocator(fake, device, made.memory) == made.address
    assert fake.mock_calls == [
        mock.call.cpu_allocator(),
        mock.call.gpu_allocator(1),
        mock.call.gpu_host_allocator(),
    ]


@pytest.mark.parametrize(
    ("setting", "device", "message"),
    [
        ({}, "CPU:0", "TF_CPU_ALLOCATOR_USE_BFC is not set"),
        ({"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, "GPU:0", "the driver manages the pool"),
        ({}, "GPU:2", "not a local CUDA GPU"),
    ],
)
def test_devices_without_a_bfc_allocator_are_refused_before_requesting_any(
    setting: dict[str, str], device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TF_CPU_ALLOCATOR_USE_BFC", "TF_GPU_ALLOCATOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(framework, "cuda_devices", lambda: ["GPU:0", "GPU:1"])
    fake = allocators_at(0)
    with pytest.raises(UnreadableError, match=message):
        framework.find_allocator(fake, device, MappedMemory(""))
    assert not fake.mock_calls


BFC = b"N3tsl12BFCAllocatorE"


def test_pointers_are_followed_only_where_memory_is_mapped() -> None:
    made = Object(BFC)
    cases = [
        (address, made.memory)
        for address in (0, 8, made.address + 4, made.address + 64, 2**63, 2**64 - 8)
    ]
    kept = [Object(BFC) for _ in range(3)]
    for broken, word, value in zip(kept, (0, 2, 6), (0x10, 0x18, 0x20), strict=True):
        broken.words[word] = value
        cases.append((broken.address, broken.memory))
    for address, memory in cases:
        with pytest.raises(UnreadableError, match="does not point to readable memory"):
            framework.type_name(address, memory)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Object(BFC, file="/lib/libother.so"), "not an object of TensorFlow's library"),
        (Object(BFC, offset_to_top=-16), "part of another object"),
        (Object(b"N" * 300), "no name at"),  # without an end
        (
            Object(b"N10tensorflow15MklCPUAllocatorE"),
            "its allocator is a tensorflow::MklCPUAllocator, not a BFC",
        ),
        (
            Object(b"N15stream_executor27GpuCudaMallocAsyncAllocatorE"),
            "its allocator is a stream_executor::GpuCudaMallocAsyncAllocator, not a BFC",
        ),
        (Object(BFC + b"X"), "its allocator is a N3tsl12BFCAllocatorEX, not a BFC"),
    ],
)
def test_objects_of_other_libraries_and_classes_and_parts_of_objects_are_refused(
    made, said, monkeypatch
) -> None:
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "1")
    with pytest.raises(UnreadableError, match=said):
        framework.find_allocator(allocators_at(made.address), "CPU:0", made.memory)


def tensorflow_with(
    gpus: dict[str, dict[str, Any]], logical: int | None = None, cuda: bool = True
) -> Any:
    """A fake of the module: physical GPUs with their details, each split into `logical` devices."""
    config = SimpleNamespace(
        get_visible_devices=lambda _: list(gpus),
        get_logical_device_configuration=lambda _: None if logical is None else [None] * logical,
        experimental=SimpleNamespace(get_device_details=lambda gpu: gpus[gpu]),
    )
    sysconfig = SimpleNamespace(get_build_info=lambda: {"is_cuda_build": cuda})
    return SimpleNamespace(config=config, sysconfig=sysconfig)


@pytest.mark.parametrize(
    ("module", "devices"),
    [
        (
            tensorflow_with(
                {"a": {"compute_capability": (9, 0)}, "b": {"compute_capability": (8, 0)}}
            ),
            2,
        ),
        (tensorflow_with({"a": {"compute_capability": (9, 0)}}, logical=3), 3),
        (tensorflow_with({"a": {"device_name": "METAL"}}), 0),
        (tensorflow_with({"a": {"compute_capability": (9, 0)}}, cuda=False), 0),
        (tensorflow_with({}), 0),
    ],
)
def test_only_local_cuda_gpus_are_listed(
    module: Any, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    assert list(framework.cuda_devices()) == [f"GPU:{number}" for number in range(devices)]


HANDLES: list[Chunk] = [
    (0x20000 + 256 * place, 256, 40, True) for place in range(framework._PROBES)
]


@pytest.mark.parametrize("after", [CHUNKS, None, [*CHUNKS, *HANDLES[1:]]])
def test_it_is_unknown_if_the_maps_do_not_show_each_handle(after: list[Chunk] | None) -> None:
    dumps = iter(
        None if listed is None else make_dump(b"CPU", 0, listed) for listed in (CHUNKS, after)
    )
    maps: Any = SimpleNamespace(read=lambda device: next(dumps))
    assert framework.resource_handle_bytes(maps, "CPU:0") is None

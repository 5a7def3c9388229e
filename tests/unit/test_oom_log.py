"""Logs of failed allocations in the wordings of several TensorFlow releases, whole, with lost lines and interleaved."""

import pytest

from tb_memplugin.codec import MISSING
from tb_memplugin.errors import FormatError
from tb_memplugin.importers.oom_log import Request, read_log, read_message
from tb_memplugin.model import FREE, IN_USE, UNKNOWN_STATE, AllocatorMap

KIB = 1 << 10
END = 2**64 - 1
# (size of the region, chunks as (address, size, in use))
REGIONS = [
    (8 * KIB, [(0x7F0000000040, 4 * KIB, True), (0x7F0000001040, 4 * KIB, False)]),
    (16 * KIB, [(0x7F1000000040, 1 * KIB, True), (0x7F1000000440, 3 * KIB, False), (0x7F1000001040, 12 * KIB, True)]),
]
ALL = [chunk for _, chunks in REGIONS for chunk in chunks]
PREFIXES = {
    "1.15": "2019-09-23 13:19:36.310831: I tensorflow/core/common_runtime/bfc_allocator.cc:905] ",
    "2.3": "2020-09-23 13:19:36.310831: I tensorflow/core/common_runtime/bfc_allocator.cc:905] ",
    "2.8": "2022-05-11 02:33:29.246930: I tensorflow/core/common_runtime/bfc_allocator.cc:1066] ",
    "2.21": "I0000 00:00:1795171370.207011   15514 bfc_allocator.cc:1105] ",
}


def chunk_line(version: str, chunk: tuple[int, int, bool], following: int) -> str:
    address, size, in_use = chunk
    state = "InUse" if in_use else "Free "
    if version == "1.15":
        return f"{'Chunk' if in_use else 'Free '} at 0x{address:x} of size {size}"
    if version == "2.3":
        return f"{state} at 0x{address:x} next {following} of size {size}"
    return f"{state} at {address:x} of size {size} next {following}"


def make_log(version: str, name: str = "GPU_0_bfc", op: str = "model/dense/MatMul", thread: str = "15514") -> list[str]:
    """The lines of one failure of 6 KiB as that release words them; taken from its bfc_allocator.cc."""
    asked = f"Allocator ({name}) ran out of memory trying to allocate 5.9KiB"
    first = {
        "1.15": f"{asked}.  Current allocation summary follows.",
        "2.3": f"{asked} (rounded to 6144)",
        "2.8": f"{asked} (rounded to 6144)requested by op {op}",
        "2.21": f"{asked} (rounded to 6144)requested by op {op}",
    }[version]
    lines = [first, f"BFCAllocator dump for {name}"]
    lines += ["Bin (1024): \tTotal Chunks: 1, Chunks in use: 1. 1.0KiB allocated for chunks."]
    lines += ["Bin (2048): \tTotal Chunks: 1, Chunks in use: 0. 3.0KiB allocated for chunks."]
    lines += ["Bin (4096): \tTotal Chunks: 2, Chunks in use: 1. 8.0KiB allocated for chunks."]
    lines += ["Bin (8192): \tTotal Chunks: 1, Chunks in use: 1. 12.0KiB allocated for chunks."]
    lines += ["Bin for 6.0KiB was 4.0KiB, Chunk State: "]
    lines += ["  Size: 4.0KiB | Requested Size: 2.0KiB | in_use: 0 | bin_num: 4, prev:   Size: 4.0KiB"]
    number = 0
    for size, chunks in REGIONS:
        if version != "1.15":
            lines.append(f"Next region of size {size}")
        for at, chunk in enumerate(chunks):
            number += 1
            lines.append(chunk_line(version, chunk, number if at + 1 < len(chunks) else END))
    lines += ["     Summary of in-use Chunks by size: ", "1 Chunks of size 1024 totalling 1.0KiB"]
    lines += ["Sum Total of in-use chunks: 17.0KiB"]
    if version == "2.3":
        lines += [
            "total_region_allocated_bytes_: 24576 memory_limit_: 24576 available bytes: 0 "
            "curr_region_allocation_bytes_: 1"
        ]
    elif version in ("2.8", "2.21"):
        lines += [
            "Total size in pool: 24.0KiB memory_limit_: 24.0KiB available size: 0B curr_region_allocation_bytes_: 1"
        ]
    limit = "24576" if version in ("1.15", "2.3") else "24.0KiB"
    prefixed = [PREFIXES[version].replace("15514", thread) + line for line in lines]
    prefixed += [PREFIXES[version].replace("15514", thread) + "Stats: ", f"Limit:    {limit}", "InUse:    17408", ""]
    return prefixed


MESSAGE = (
    "W tensorflow/core/framework/op_kernel.cc:1] OP_REQUIRES failed at x.cc:1 : Resource exhausted: OOM when "
    "allocating tensor with shape[10,151] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator "
    "GPU_0_bfc"
)


def listed(taken: AllocatorMap) -> list[tuple[int, int, bool]]:
    known = taken.state != UNKNOWN_STATE
    return list(
        zip(
            taken.address[known].tolist(),
            taken.bytes[known].tolist(),
            (taken.state[known] == IN_USE).tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("version", list(PREFIXES))
def test_every_wording_gives_the_same_chunks(version: str) -> None:
    (failure,) = read_log("\n".join([*make_log(version), MESSAGE]), 5.0)
    assert failure.device == "GPU:0" and failure.map is not None
    assert listed(failure.map) == ALL
    assert failure.request.requested_bytes == 10 * 151 * 4
    assert failure.map.capacity_bytes == 24 * KIB
    assert (failure.map.requested_bytes == MISSING).all()
    if version != "1.15":  # which does not name its regions
        assert failure.map.complete
        assert failure.map.region_bytes.tolist() == [8 * KIB, 16 * KIB]
        assert (failure.map.pool_bytes, failure.map.in_use_bytes) == (24 * KIB, 17 * KIB)
        assert failure.map.not_available == () == failure.notes


def test_without_the_message_the_request_is_known_as_rounded_only() -> None:
    (failure,) = read_log("\n".join(make_log("2.21")), 5.0)
    assert (failure.request.requested_bytes, failure.request.op) == (6 * KIB, "model/dense/MatMul")
    assert any("rounded up" in sentence for sentence in failure.notes)


def test_other_lines_in_between_do_no_harm() -> None:
    lines = make_log("2.21")
    mixed = [
        other for line in lines for other in (line, "Epoch 3: loss 0.25", "W0000 00:00:1.5   99 x.cc:1] Free at 1")
    ]
    (failure,) = read_log("\n".join(mixed), 5.0)
    assert failure.map is not None and listed(failure.map) == ALL and failure.map.complete


@pytest.mark.parametrize("lost", range(9, 15))
def test_a_lost_line_is_said_and_nothing_is_made_up(lost: int) -> None:
    lines = make_log("2.21")
    assert any(word in lines[lost] for word in ("region", "InUse", "Free ")), lines[lost]
    (failure,) = read_log("\n".join(lines[:lost] + lines[lost + 1 :]), 5.0)
    taken = failure.map
    assert taken is not None and not taken.complete
    assert set(listed(taken)) <= set(ALL)
    assert any("not available" in sentence for sentence in failure.notes)
    unknown = taken.state == UNKNOWN_STATE
    for start, size in zip(taken.address[unknown].tolist(), taken.bytes[unknown].tolist(), strict=True):
        # What is drawn as unknown is a place where the allocator really had something.
        assert any(address <= start and start + size <= address + length for address, length, _ in ALL)


def test_a_truncated_log_keeps_what_it_has() -> None:
    lines = make_log("2.21")[:13]
    (failure,) = read_log("\n".join(lines), 5.0)
    assert failure.map is not None and not failure.map.complete
    assert listed(failure.map) == ALL[: len(listed(failure.map))]
    assert any("ends early" in sentence for sentence in failure.notes)


def test_two_dumps_in_one_another_are_told_apart_by_their_threads() -> None:
    one, other = make_log("2.21"), make_log("2.21", name="GPU_1_bfc", thread="777")
    woven = [line for pair in zip(one, other, strict=True) for line in pair if line.startswith(("I", "W"))]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.device for failure in failures] == ["GPU:0", "GPU:1"]
    assert all(failure.map is not None and listed(failure.map) == ALL for failure in failures)


def test_two_dumps_in_one_another_without_threads_are_not_guessed_apart() -> None:
    one, other = make_log("2.8"), make_log("2.8", name="GPU_1_bfc")
    woven = one[:10] + other[:12] + one[10:] + other[12:]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.map for failure in failures] == [None, None]
    assert all("mixes the dumps of two allocators" in failure.notes[0] for failure in failures)


def test_a_failure_that_tensorflow_tolerates_is_none() -> None:
    line = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller "
        "indicates that this is not a failure, but may mean that there could be performance gains if more memory "
        "were available."
    )
    with pytest.raises(FormatError, match="holds 1 that TensorFlow tolerated"):
        read_log(line, 5.0)
    assert len(read_log("\n".join([line, *make_log("2.3"), line]), 5.0)) == 1


def test_a_message_alone_is_a_failure_without_chunks() -> None:
    (failure,) = read_log(MESSAGE, 5.0)
    assert failure.map is None and failure.request.requested_bytes == 6040
    assert "does not hold the dump" in failure.notes[0]


def test_a_free_chunk_is_free_and_a_used_one_is_used() -> None:
    (failure,) = read_log("\n".join(make_log("2.21")), 5.0)
    assert failure.map is not None
    assert failure.map.state.tolist() == [IN_USE, FREE, IN_USE, FREE, IN_USE]


@pytest.mark.parametrize("text", ["", "hello\nworld", "\n" * 50, "InUse at zz of size 5"])
def test_a_log_without_any_failure_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="tells of no failed allocation"):
        read_log(text, 5.0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Graph execution error:\n\nDetected at node a/b defined at\nOOM when allocating tensor with shape[16,8] "
            "and type half on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n"
            "\t [[{{node a/b}}]]\nHint: x",
            Request(256, "a/b", "[16,8] half", "GPU:1", "GPU_1_bfc"),
        ),
        (
            "{{function_node __wrapped__Fill_device_/job:x}} OOM when allocating tensor with shape[3] and type double "
            "on /job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu [Op:Fill] name: ",
            Request(24, "Fill", "[3] double", "CPU:0", "bfc_cpu_allocator_for_gpu"),
        ),
        ("OOM when allocating tensor of shape [] and type float\n\t [[node x (defined at y)]]", None),
        ("Out of memory while trying to allocate 2147483648 bytes.", Request(2147483648, compiled=True)),
        (
            "Out of memory while trying to allocate 145.20MiB.\n\t [[{{node StatefulPartitionedCall}}]]\nHint: x",
            Request(152253235, "StatefulPartitionedCall", uncertain_bytes=5243, compiled=True),
        ),
        ("Out of memory while trying to allocate 2GiB.", Request(2 << 30, uncertain_bytes=1 << 29, compiled=True)),
        ("Out of memory while trying to allocate 96B.", Request(96, compiled=True)),
        (
            "OOM when allocating tensor with shape[7] and type variant on /device:GPU:0",
            Request(None, None, "[7] variant", "GPU:0"),
        ),
        ("No space left on device", None),
    ],
)
def test_messages_tell_size_operation_and_device(message: str, expected: Request | None) -> None:
    found = read_message(message)
    if expected is None and "OOM" in message:
        assert found is not None and found.requested_bytes is None
    else:
        assert found == expected

"""Logs of failed allocations in the formats of several TensorFlow releases: complete, incomplete, interleaved."""

import pytest
from log_cases import ALL, EARLY_MESSAGE, KIB, MESSAGE, PREFIXES, make_log

from tb_memplugin.allocator.fit import verdict
from tb_memplugin.errors import FormatError
from tb_memplugin.importers.allocator.log_dump import printed_bytes
from tb_memplugin.importers.allocator.oom_log import Request, read_log, read_message
from tb_memplugin.model import FREE, IN_USE, MISSING, UNKNOWN_STATE, MemoryMap


def listed(memory_map: MemoryMap) -> list[tuple[int, int, bool]]:
    known = memory_map.state != UNKNOWN_STATE
    return list(
        zip(
            memory_map.address[known].tolist(),
            memory_map.bytes[known].tolist(),
            (memory_map.state[known] == IN_USE).tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("version", list(PREFIXES))
def test_every_log_format_gives_the_same_chunks(version: str) -> None:
    (failure,) = read_log("\n".join([*make_log(version), MESSAGE]), 5.0)
    assert failure.device == "GPU:0" and failure.map is not None
    assert listed(failure.map) == ALL
    assert failure.request.requested_bytes == 10 * 151 * 4
    assert failure.map.capacity_bytes == 24 * KIB
    assert (failure.map.requested_bytes == MISSING).all()
    assert failure.map.complete
    assert failure.map.region_bytes.tolist() == [8 * KIB, 16 * KIB]
    assert (failure.map.pool_bytes, failure.map.in_use_bytes) == (24 * KIB, 17 * KIB)
    assert failure.map.not_available == () == failure.notes


def test_without_the_message_only_the_rounded_request_is_known() -> None:
    (failure,) = read_log("\n".join(make_log("2.21")), 5.0)
    assert (failure.request.requested_bytes, failure.request.op) == (6 * KIB, "model/dense/MatMul")
    assert any("rounds it up" in sentence for sentence in failure.notes)


def test_unrelated_lines_are_skipped() -> None:
    lines = make_log("2.21")
    mixed = [
        other for line in lines for other in (line, "Epoch 3: loss 0.25", "W0000 00:00:1.5   99 x.cc:1] Free at 1")
    ]
    (failure,) = read_log("\n".join(mixed), 5.0)
    assert failure.map is not None and listed(failure.map) == ALL and failure.map.complete


@pytest.mark.parametrize("lost", range(9, 15))
def test_missing_line_has_a_note_and_unknown_chunks(lost: int) -> None:
    lines = make_log("2.21")
    assert any(word in lines[lost] for word in ("region", "InUse", "Free ")), lines[lost]
    (failure,) = read_log("\n".join(lines[:lost] + lines[lost + 1 :]), 5.0)
    taken = failure.map
    assert taken is not None and not taken.complete
    assert set(listed(taken)) <= set(ALL)
    assert any("unknown" in sentence or "missing" in sentence for sentence in failure.notes)
    unknown = taken.state == UNKNOWN_STATE
    for start, size in zip(taken.address[unknown].tolist(), taken.bytes[unknown].tolist(), strict=True):
        # A stretch of unknown contents is one where the allocator had a chunk.
        assert any(address <= start and start + size <= address + length for address, length, _ in ALL)


def test_truncated_log_keeps_its_chunks() -> None:
    lines = make_log("2.21")[:13]
    (failure,) = read_log("\n".join(lines), 5.0)
    assert failure.map is not None and not failure.map.complete
    assert listed(failure.map) == ALL[: len(listed(failure.map))]
    assert any("missing from the log" in sentence for sentence in failure.notes)


def test_interleaved_dumps_are_separated_by_thread() -> None:
    one, other = make_log("2.21"), make_log("2.21", name="GPU_1_bfc", thread="777")
    woven = [line for pair in zip(one, other, strict=True) for line in pair if line.startswith(("I", "W"))]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.device for failure in failures] == ["GPU:0", "GPU:1"]
    assert all(failure.map is not None and listed(failure.map) == ALL for failure in failures)


def test_interleaved_dumps_without_threads_are_unknown() -> None:
    one, other = make_log("2.8"), make_log("2.8", name="GPU_1_bfc")
    woven = one[:10] + other[:12] + one[10:] + other[12:]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.map for failure in failures] == [None, None]
    assert all("mixes the dumps of two allocators" in failure.notes[0] for failure in failures)


def test_tolerated_failure_is_skipped() -> None:
    line = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller "
        "indicates that this is not a failure, but may mean that there could be performance gains if more memory "
        "were available."
    )
    with pytest.raises(FormatError, match="but 1 that TensorFlow tolerated"):
        read_log(line, 5.0)
    assert len(read_log("\n".join([line, *make_log("2.3"), line]), 5.0)) == 1


def test_a_message_alone_is_a_failure_without_chunks() -> None:
    (failure,) = read_log(MESSAGE, 5.0)
    assert failure.map is None and failure.request.requested_bytes == 6040
    assert "lacks the dump" in failure.notes[0]


def test_a_free_chunk_is_free_and_a_used_one_is_used() -> None:
    (failure,) = read_log("\n".join(make_log("2.21")), 5.0)
    assert failure.map is not None
    assert failure.map.state.tolist() == [IN_USE, FREE, IN_USE, FREE, IN_USE]


@pytest.mark.parametrize("text", ["", "hello\nworld", "\n" * 50, "InUse at zz of size 5"])
def test_a_log_without_any_failure_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="has no failed allocation"):
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
        (
            "OOM when allocating tensor of shape [2,3] and type float\n\t [[node x (defined at y)]]",
            Request(24, "x", "[2,3] float"),
        ),
        ("Out of memory while trying to allocate 2147483648 bytes.", Request(2147483648, compiled=True)),
        (
            "Out of memory while trying to allocate 145.20MiB.\n\t [[{{node StatefulPartitionedCall}}]]\nHint: x",
            Request(152253235, "StatefulPartitionedCall", uncertain_bytes=5243 + 1024, compiled=True),
        ),
        (
            "Out of memory while trying to allocate 2GiB.",
            Request(2 << 30, uncertain_bytes=(1 << 29) + (1 << 20), compiled=True),
        ),
        ("Out of memory while trying to allocate 96B.", Request(96, compiled=True)),
        (
            "OOM when allocating tensor with shape[7] and type variant on /device:GPU:0",
            Request(None, None, "[7] variant", "GPU:0"),
        ),
        ("No space left on device", None),
    ],
)
def test_messages_have_size_op_and_device(message: str, expected: Request | None) -> None:
    assert read_message(message) == expected


@pytest.mark.parametrize("version", ["1.0", "1.4"])
def test_early_logs_list_chunks_in_use_before_free_ones(version: str) -> None:
    """The message lacks the type: of all element sizes, only 4 bytes make 5.9 KiB."""
    (failure,) = read_log("\n".join([*make_log(version), *EARLY_MESSAGE]), 5.0)
    assert failure.map is not None and failure.map.complete and listed(failure.map) == ALL
    assert (failure.map.pool_bytes, failure.map.capacity_bytes) == (24 * KIB, 24 * KIB)
    assert failure.map.in_use_bytes == 17 * KIB
    assert failure.request == Request(6040, "conv1/Conv2D", "[10,151]", "GPU:0")
    assert (failure.device, failure.notes) == ("GPU:0", ())
    assert verdict(failure.map, 6040)[0] == "fragmentation"


@pytest.mark.parametrize("version", ["1.0", "1.4"])
def test_a_size_printed_for_readers_is_known_within_a_range(version: str) -> None:
    (failure,) = read_log("\n".join(make_log(version)), 5.0)
    assert failure.map is not None and failure.map.complete
    assert failure.request.requested_bytes == round(5.9 * KIB)
    assert failure.request.uncertain_bytes == 51
    assert abs(6040 - round(5.9 * KIB)) <= 51


def test_a_missing_line_of_an_early_log_leaves_unknown_chunks() -> None:
    lines = [line for line in make_log("1.4") if "Free at 0x7f1000000440" not in line]
    (failure,) = read_log("\n".join(lines), 5.0)
    assert failure.map is not None and not failure.map.complete
    assert failure.notes[0] == "1 of 5 chunks are unknown: the log lacks their lines."
    assert set(listed(failure.map)) < set(ALL)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("96B", 96, 96), ("5.9KiB", 5991, 6092), ("1.50GiB", 1_605_369_856, 1_616_904_191)],
)
def test_a_printed_size_covers_every_size_that_is_printed_so(text: str, least: int, most: int) -> None:
    about, uncertain = printed_bytes(text)
    printed = [size for size in (least - 1, least, most, most + 1) if human_readable(size) == text]
    assert printed == [least, most]
    assert about - uncertain <= least <= most <= about + uncertain


def human_readable(size: int) -> str:
    """TensorFlow's ``strings::HumanReadableNumBytes``."""
    if size < 1024:
        return f"{size}B"
    units = iter("KMGTPE")
    unit = next(units)
    while size >= 1 << 20:
        size, unit = size >> 10, next(units)
    return f"{size / 1024:.{1 if unit == 'K' else 2}f}{unit}iB"

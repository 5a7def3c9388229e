"""Logs of failed allocations in the formats of several TensorFlow releases: complete, incomplete, interleaved."""

import pytest
from log_cases import ALL, KIB, MESSAGE, PREFIXES, make_log

from tb_memplugin.errors import FormatError
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
    if version != "1.15":  # which does not name its regions
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
def test_messages_have_size_op_and_device(message: str, expected: Request | None) -> None:
    found = read_message(message)
    if expected is None and "OOM" in message:
        assert found is not None and found.requested_bytes is None
    else:
        assert found == expected

"""Logs of failed allocations in the formats of several TensorFlow releases: complete, incomplete,
interleaved."""

import time

import numpy as np
import pytest
from log_cases import ALL, EARLY_MESSAGE, KIB, MESSAGE, PREFIXES, make_log

from tb_memplugin.allocator import verdict
from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.errors import FormatError
from tb_memplugin.importers import LoggedFailure, Request, read_log, read_message
from tb_memplugin.schema import FREE, IN_USE, MISSING, UNKNOWN_STATE, MemoryMap


def listed(memory_map: MemoryMap) -> list[tuple[int, int, bool]]:
    """Address, bytes and whether it is in use, of each known chunk."""
    columns = zip(
        memory_map.address.tolist(),
        memory_map.bytes.tolist(),
        memory_map.state.tolist(),
        strict=True,
    )
    return [
        (address, size, state == IN_USE)
        for address, size, state in columns
        if state != UNKNOWN_STATE
    ]


def only(*lines: str) -> LoggedFailure:
    (found,) = read_log("\n".join(lines), 5.0)
    return found


@pytest.mark.parametrize("version", list(PREFIXES))
def test_every_log_format_gives_the_same_chunks(version: str) -> None:
    failure = only(*make_log(version), MESSAGE)
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
    failure = only(*make_log("2.21"))
    assert (failure.request.requested_bytes, failure.request.op) == (6 * KIB, "model/dense/MatMul")
    assert any("rounds it up" in sentence for sentence in failure.notes)


def test_unrelated_lines_are_skipped() -> None:
    others = ("Epoch 3: loss 0.25", "W0000 00:00:1.5   99 x.cc:1] Free at 1")
    failure = only(*(one for line in make_log("2.21") for one in (line, *others)))
    assert failure.map is not None and listed(failure.map) == ALL and failure.map.complete


@pytest.mark.parametrize("lost", range(9, 15))
def test_missing_line_has_a_note_and_unknown_chunks(lost: int) -> None:
    lines = make_log("2.21")
    assert any(word in lines[lost] for word in ("region", "InUse", "Free ")), lines[lost]
    failure = only(*lines[:lost] + lines[lost + 1 :])
    taken = failure.map
    assert taken is not None and not taken.complete
    assert set(listed(taken)) <= set(ALL)
    assert any("unknown" in sentence or "missing" in sentence for sentence in failure.notes)
    unknown = taken.state == UNKNOWN_STATE
    for start, size in zip(
        taken.address[unknown].tolist(), taken.bytes[unknown].tolist(), strict=True
    ):
        # A stretch of unknown contents is one where the allocator had a chunk.
        assert any(
            address <= start and start + size <= address + length for address, length, _ in ALL
        )


def test_truncated_log_keeps_its_chunks() -> None:
    lines = make_log("2.21")[:13]
    failure = only(*lines)
    assert failure.map is not None and not failure.map.complete
    assert listed(failure.map) == ALL[: len(listed(failure.map))]
    assert any("missing from the log" in sentence for sentence in failure.notes)


def test_interleaved_dumps_are_separated_by_thread_and_unknown_without() -> None:
    one, other = make_log("2.21"), make_log("2.21", name="GPU_1_bfc", thread="777")
    woven = [
        line
        for pair in zip(one, other, strict=True)
        for line in pair
        if line.startswith(("I", "W"))
    ]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.device for failure in failures] == ["GPU:0", "GPU:1"]
    assert all(failure.map is not None and listed(failure.map) == ALL for failure in failures)
    one, other = make_log("2.8"), make_log("2.8", name="GPU_1_bfc")
    woven = one[:10] + other[:12] + one[10:] + other[12:]
    failures = read_log("\n".join(woven), 5.0)
    assert [failure.map for failure in failures] == [None, None]
    assert all("mixes the dumps of two allocators" in failure.notes[0] for failure in failures)


def test_a_tolerated_failure_is_skipped_and_the_devices_refusal_is_no_failure() -> None:
    line = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with "
        "freed_by_count=0. The caller indicates that this is not a failure, but may mean that "
        "there could be performance gains if more memory were available."
    )
    with pytest.raises(FormatError, match="but 1 that TensorFlow tolerated"):
        read_log(line, 5.0)
    assert read_log(line, 5.0, required=False) == []
    assert len(read_log("\n".join([line, *make_log("2.3"), line]), 5.0)) == 1
    line = (
        "failed to allocate 3.90G (4187593216 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out "
        "of memory"
    )
    assert read_log(line, 0.0, required=False) == []
    assert len(read_log("\n".join([line, MESSAGE]), 0.0)) == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Graph execution error:\n\nDetected at node a/b "
            "defined "
            "at\nOOM "
            "when "
            "allocating "
            "tensor with "
            "shape[16,8] "
            "and type half on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n"
            "\t [[{{node a/b}}]]\nHint: x",
            Request(256, "a/b", "[16,8] half", "GPU:1", "GPU_1_bfc"),
        ),
        (
            "{{function_node __wrapped__Fill_device_/job:x}} OOM when allocating tensor with "
            "shape[3] and type double on /job:localhost/replica:0/task:0/device:CPU:0 by "
            "allocator bfc_cpu_allocator_for_gpu [Op:Fill] name: ",
            Request(24, "Fill", "[3] double", "CPU:0", "bfc_cpu_allocator_for_gpu", eager=True),
        ),
        (
            "OOM when allocating tensor of shape [2,3] and type float\n\t [[node x "
            "(defined "
            "at "
            "y)]]",
            Request(24, "x", "[2,3] float"),
        ),
        (
            "Out of memory while trying to allocate 2147483648 bytes.",
            Request(2147483648, compiled=True),
        ),
        (
            "Out of memory while trying to allocate "
            "145.20MiB.\n\t "
            "[[{{node "
            "StatefulPartitionedCall}}]]\nHint: x",
            Request(
                152253235, "StatefulPartitionedCall", uncertain_bytes=5243 + 1024, compiled=True
            ),
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
        (
            "RESOURCE_EXHAUSTED: Failed to allocate request for 154.06GiB (165425291480B) on device"
            " ordinal 0",
            Request(165425291480, compiled=True),
        ),
        ("Out of memory allocating 17179869184 bytes.", Request(17179869184, compiled=True)),
        (
            "OOM when allocating tensor with shape[14408,624,804,1] and type float on "
            "/job:localhost/replica:0/task:0/device:CPU:0 by allocator gpu_host_bfc",
            Request(28913743872, None, "[14408,624,804,1] float", *["gpu_host_bfc"] * 2),
        ),
        (
            "{{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:1}}"
            " failed to allocate memory [Op:AddV2] name: ",
            Request(op="AddV2", device="GPU:1", eager=True),
        ),
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB", Request()),
        ("No space left on device", None),
    ],
)
def test_messages_have_size_op_and_device(message: str, expected: Request | None) -> None:
    assert read_message(message) == expected


@pytest.mark.parametrize("version", ["1.0", "1.4"])
def test_early_logs_list_chunks_in_use_before_free_ones(version: str) -> None:
    """The message lacks the type: of all element sizes, only 4 bytes make 5.9 KiB."""
    failure = only(*make_log(version), *EARLY_MESSAGE)
    assert failure.map is not None and failure.map.complete and listed(failure.map) == ALL
    assert (failure.map.pool_bytes, failure.map.capacity_bytes) == (24 * KIB, 24 * KIB)
    assert failure.map.in_use_bytes == 17 * KIB
    assert failure.request == Request(6040, "conv1/Conv2D", "[10,151] float", "GPU:0")
    assert (failure.device, failure.notes) == ("GPU:0", ())
    assert verdict(failure.map, 6040)[0] == "fragmentation"


def test_a_missing_line_of_an_early_log_leaves_unknown_chunks() -> None:
    lines = [line for line in make_log("1.4") if "Free at 0x7f1000000440" not in line]
    failure = only(*lines)
    assert failure.map is not None and not failure.map.complete
    assert failure.notes[0] == "1 of 5 chunks are unknown: the log lacks their lines."
    assert set(listed(failure.map)) < set(ALL)


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (
            [
                "Next region of size 1024",
                "InUse at 100 of size 256 next 1",
                "Free at 300 of size 256 next 2",
            ],
            "ugf",
        ),
        (
            [
                "Next region of size 1024",
                "InUse at 100 of size 256",
                f"Free at 300 of size 256 next {2**64 - 1}",
            ],
            "gugf",
        ),
        (
            [
                "InUse at 1000 of size 256 next 1",
                "InUse at 100 of size 256",
                "InUse at 300 of size 256 next 9",
            ],
            "uuu",
        ),
        (["Next region of size 512", "InUse at 100 of size 0 next 1"], None),
        (["Next region of size 512", f"InUse at {2**62:x} of size 512 next 1"], None),
    ],
)
def test_parts_of_a_region_without_chunks_are_unknown(lines: list[str], rows: str | None) -> None:
    failure = only(*lines, "Summary of in-use Chunks by size:", MESSAGE)
    if rows is None:
        assert failure.map is None and "are inconsistent" in failure.notes[0]
    else:
        assert failure.map is not None and not failure.map.complete
        states = {"u": IN_USE, "f": FREE, "g": UNKNOWN_STATE}
        assert failure.map.state.tolist() == [states[row] for row in rows]
        assert (
            failure.map.bytes.tolist() == [256] * len(rows)
            and (np.diff(failure.map.address) >= 0).all()
        )


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("96B", 96, 96), ("5.9KiB", 5991, 6092), ("1.50GiB", 1_605_369_856, 1_616_904_191)],
)
def test_a_printed_size_covers_every_size_that_is_printed_so(
    text: str, least: int, most: int
) -> None:
    request = read_message(f"Out of memory while trying to allocate {text}.")
    assert request is not None and request.requested_bytes is not None
    about, uncertain = request.requested_bytes, request.uncertain_bytes
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


def node(name: str, kind: str, attributes: str = "") -> str:
    """A node as TensorFlow 1.x prints it."""
    attributes = f"{attributes}, " if attributes else ""
    return (
        f"[[Node: {name} = "
        f'{kind}[{attributes}_device="/job:localhost/replica:0/task:0/device:GPU:0"](a, b)]]'
    )


STATISTICS = """Sum Total of in-use chunks: 198.75MiB
Stats:
Limit:                   285474816
InUse:                   208404480
MaxInUse:                208404480
NumAllocs:                      26
MaxAllocSize:            121448704
"""


@pytest.mark.parametrize(
    ("kind", "attributes", "name", "size"),
    [
        ("Conv2D", 'T=DT_FLOAT, data_format="NHWC"', "float", 4),
        ("MatMul", "T=DT_HALF, transpose_a=false", "half", 2),
        ("Mul", "T=DT_BFLOAT16", "bfloat16", 2),
        ("Cast", "DstT=DT_INT64, SrcT=DT_UINT8", "int64", 8),
        ("Cast", "SrcT=DT_FLOAT, DstT=DT_HALF", "half", 2),
        ("RandomUniform", "T=DT_INT32, dtype=DT_DOUBLE, seed=0", "double", 8),
        ("VariableV2", 'container="", dtype=DT_FLOAT, shape=[16,9]', "float", 4),
        ("ArgMax", "T=DT_FLOAT, Tidx=DT_INT32, output_type=DT_INT64", "int64", 8),
        ("GatherV2", "Taxis=DT_INT32, Tindices=DT_INT64, Tparams=DT_HALF", "half", 2),
        ("GreaterEqual", "T=DT_FLOAT", "bool", 1),
        ("NotEqual", "T=DT_INT64", "bool", 1),
        ("LogicalAnd", "", "bool", 1),
        ("FFT2D", "Tcomplex=DT_COMPLEX64", "complex64", 8),
        ("Complex", "T=DT_DOUBLE, Tout=DT_COMPLEX128", "complex128", 16),
    ],
)
def test_the_type_of_a_message_without_one_is_its_nodes(
    kind: str, attributes: str, name: str, size: int
) -> None:
    message = (
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with "
        "shape[16,9]"
    )
    failure = only(f"{message}\n\t {node('a/b', kind, attributes)}")
    assert failure.request == Request(16 * 9 * size, "a/b", f"[16,9] {name}", "GPU:0")


def test_a_nodes_type_does_not_contradict_the_allocator() -> None:
    rounded = "Ran out of memory trying to allocate 288B.  See logs for memory state"
    failure = only(
        rounded, "OOM when allocating tensor with shape[9,16]", node("a", "Conv2D", "T=DT_FLOAT")
    )
    assert (failure.request.requested_bytes, failure.request.op) == (288, "a")


END_OF_LOG = "1 Chunks of size 121448704 totalling 115.82MiB\n" + STATISTICS
FAILED_CONV = ("OOM when allocating tensor with shape[128,225,225,3]\n\t ") + node(
    "conv1/Conv2D", "Conv2D", "T=DT_FLOAT"
)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "I tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
        "2017-11-06 08:55:24.919712: I tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
        "2017-11-06 08:55:24.919712 I tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
        "[1,0]<stderr>:2019-11-06 08:55:24.919712: I "
        "tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
        "worker_1  | 2019-11-06 08:55:24.919712: I "
        "tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
        "2021-03-01T10:00:00Z stderr F 2021-03-01 10:00:00.1: I "
        "tensorflow/core/common_runtime/bfc_allocator.cc:679] ",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_end_of_a_log_has_the_allocators_figures(prefix: str, end: str) -> None:
    lines = [
        prefix + line if "hunks" in line else line
        for line in (END_OF_LOG + FAILED_CONV).splitlines()
    ]
    failure = only(end.join(lines))
    assert failure.request == Request(77_760_000, "conv1/Conv2D", "[128,225,225,3] float", "GPU:0")
    assert (failure.in_use_bytes, failure.capacity_bytes) == (208_404_480, 285_474_816)
    figures = {"in_use_bytes": failure.in_use_bytes, "capacity_bytes": failure.capacity_bytes}
    oom = post_mortem(
        OomEvent("", "failed", "GPU:0", 0.0, requested_bytes=77_760_000, **figures), failure.map
    )
    assert (oom.free_bytes, oom.verdict) == (77_070_336, "capacity")


def test_a_whole_summary_by_size_gives_the_bytes_in_use() -> None:
    sizes = ["35 Chunks of size 256 totalling 8.8KiB", "2 Chunks of size 4096 totalling 8.0KiB"]
    sizes.append("Sum Total of in-use chunks: 16.8KiB")
    assert only("Summary of in-use Chunks by size: ", *sizes).in_use_bytes == 35 * 256 + 2 * 4096
    assert only(*sizes).in_use_bytes is None  # lines may be missing


def test_each_end_of_a_log_is_a_failure_of_its_own() -> None:
    other = FAILED_CONV.replace("128,", "64,").replace("conv1", "conv2")
    text = "\n".join([END_OF_LOG, FAILED_CONV, END_OF_LOG.replace("208404480", "208404224"), other])
    first, second = read_log(text, 0.0)
    assert (first.request.op, second.request.op) == ("conv1/Conv2D", "conv2/Conv2D")
    assert (first.in_use_bytes, second.in_use_bytes) == (208_404_480, 208_404_224)
    first, whole = read_log("\n".join([END_OF_LOG, FAILED_CONV, *make_log("2.21"), MESSAGE]), 0.0)
    assert first.map is None and first.in_use_bytes == 208_404_480
    assert (
        whole.map is not None and listed(whole.map) == ALL and whole.request.requested_bytes == 6040
    )


def test_a_tensor_that_cannot_be_copied_is_a_failure() -> None:
    pool = (
        "total_region_allocated_bytes_: 239195 memory_limit_: 239195 available bytes: 0 "
        "curr_region_allocation_"
    )
    message = (
        "InternalError: Failed copying input tensor from "
        "/job:localhost/replica:0/task:0/device:CPU:0 to "
        "/job:localhost/replica:0/task:0/device:GPU:1 in order to run _EagerConst: Dst tensor is "
        "not initialized."
    )
    failure = only(f"1 Chunks of size 189 totalling 189B\n{pool}\n{message}")
    assert failure.request == Request(None, "_EagerConst", device="GPU:1", copy=True)
    assert (failure.device, failure.capacity_bytes, failure.in_use_bytes) == (
        "GPU:1",
        239_195,
        None,
    )
    assert any("no memory for it" in note for note in failure.notes)
    alone = only(
        "InternalError: Dst tensor is not initialized.",
        f"\t {node('x/read', 'Identity', 'T=DT_FLOAT')}",
    )
    assert alone.request == Request(None, "x/read", device="GPU:0", copy=True)


DIMENSIONS = "  dim {\n    size: 832\n  }\n  dim {\n    size: 216\n  }\n"
PROTO = (
    "Cannot parse tensor from proto: dtype: "
    "DT_FLOAT\ntensor_shape "
    f"{{\n{DIMENSIONS}}}\nfloat_val: "
    "0\n\n"
)


def test_a_tensor_that_was_not_parsed_may_be_for_want_of_memory() -> None:
    text = f"W tensorflow/core/framework/op_kernel.cc:1182] Invalid argument: {PROTO}"
    with pytest.raises(
        FormatError,
        match=r"may have been no memory for a constant .* "
        r"here "
        r"702 "
        r"KiB "
        r"for "
        r"\[832,216\] "
        r"float",
    ):
        read_log(
            text + "E tensorflow/x.cc:643] Executor failed: Cannot parse tensor from proto: dtype: "
            "DT_FLOAT",
            0.0,
        )
    for required in (True, False):
        with pytest.raises(FormatError, match="no memory for a constant or an initial value: exp"):
            read_log("InvalidArgumentError: Cannot parse tensor from proto", 0.0, required)
    failure = only(END_OF_LOG + text)
    assert failure.request == Request(832 * 216 * 4, shape="[832,216] float")


OF_MUL, RELU = "{{function_node __wrapped__Mul}}", node("a", "Relu", "T=DT_FLOAT")
WITH_DIMENSIONS = "OOM when allocating tensor with shapedim { size: 64 } dim { size: 9 }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2048 bytes.",
            Request(2048, compiled=True),
        ),
        (
            f"ResourceExhaustedError: {OF_MUL} failed to allocate memory [Op:Mul] name: ",
            Request(None, "Mul"),
        ),
        (f"{WITH_DIMENSIONS}\n\t {RELU}", Request(64 * 9 * 4, "a", "[64,9] float", "GPU:0")),
    ],
)
def test_a_message_alone_in_other_words(text: str, expected: Request) -> None:
    twice = "\n".join(
        [text, "During handling of the above exception, another exception occurred:", text]
    )
    for log in (text, twice):
        failure = only(log)
        assert (
            failure.request == expected
            and failure.map is None
            and "lacks the dump" in failure.notes[0]
        )


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello\nworld", "\n" * 50, "InUse at zz of size 5"),
        *(STATISTICS.partition("\n")[2], "Limit: 5\nInUse: 3", "size: 3\n" * 300),
    ],
)
def test_a_log_without_a_failure_and_statistics_alone_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="has no failed allocation: expected"):
        read_log(text, 0.0)


def test_no_line_takes_long() -> None:
    lines = [
        "a." * 10_000,
        " " * 20_000,
        "dim " * 5_000,
        "[[Node: " * 2_000,
        "T=DT_A, " * 2_000,
        "I " * 10_000,
    ]
    began = time.process_time()
    with pytest.raises(FormatError):
        read_log("\n".join(["Cannot parse tensor from proto", *lines] * 3), 0.0)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("version", list(PREFIXES))
def test_no_end_of_a_log_has_a_wrong_number(version: str) -> None:
    lines = make_log(version)
    for start in range(len(lines) + 1):
        failures = read_log("\n".join([*lines[start:], MESSAGE]), 0.0)
        assert len(failures) == 1, start
        (failure,) = failures
        assert failure.request.requested_bytes == 6040
        assert failure.in_use_bytes in (None, 17 * KIB) and failure.capacity_bytes in (
            None,
            24 * KIB,
        )
        if start and failure.map is not None:
            assert set(listed(failure.map)) <= set(ALL) and failure.map.in_use_bytes in (
                None,
                17 * KIB,
            )
            assert failure.map.pool_bytes in (None, 24 * KIB) and failure.map.capacity_bytes in (
                None,
                24 * KIB,
            )
        if any("InUse:  " in line for line in lines[start:]):
            assert failure.in_use_bytes == 17 * KIB


EAGER = "{{function_node __wrapped__%s_device_/job:localhost/replica:0/task:0/device:GPU:0}} "
KERAS_3 = """ResourceExhaustedError: Exception encountered when calling {layer}.call().

{message}

Arguments received by {layer}.call():
  • inputs={inputs}
  • training=True
"""
KERAS_2 = """Error: Exception encountered when calling layer "act_5" (type {layer}).

{message}

Call arguments received by layer "act_5" (type {layer}):
  • inputs={inputs}
"""
TF_2_7 = KERAS_2.replace('received by layer "act_5" (type {layer})', "received")
ONE = "tf.Tensor(shape=(16, 32, 32, 1344), dtype=float32)"


def keras_log(form: str, layer: str, op: str, inputs: str) -> str:
    message = f"{EAGER % op}failed to allocate memory [Op:{op}] name: "
    return form.format(layer=layer, message=message, inputs=inputs)


@pytest.mark.parametrize("first", ["", "W op_kernel.cc:1] X : failed to allocate memory\n"])
@pytest.mark.parametrize(("form", "name"), [(KERAS_3, None), (KERAS_2, "act_5"), (TF_2_7, "act_5")])
@pytest.mark.parametrize(
    ("layer", "op", "inputs", "shape", "size"),
    [
        ("Activation", "Sigmoid", ONE, "[16,32,32,1344] float", 88_080_384),
        ("ReLU", "Relu", ONE.replace("float32", "float16"), "[16,32,32,1344] half", 44_040_192),
        ("Add", "AddV2", f"['{ONE}', '{ONE}']", "[16,32,32,1344] float", 88_080_384),
        ("Sigmoid", "Sigmoid", "tf.Tensor(shape=(7,), dtype=float64)", "[7] double", 56),
        # An op of such a layer or of these inputs need not have a result of their shape.
        ("Dense", "Relu", ONE, None, None),
        ("Activation", "ConcatV2", ONE, None, None),
        ("BatchNormalization", "Mul", ONE, None, None),
        ("Multiply", "Mul", f"['{ONE}', '{ONE.replace('32, 32', '1, 1')}']", None, None),
        ("Activation", "Sigmoid", "None", None, None),
    ],
)
def test_the_arguments_of_a_keras_layer_give_the_size(
    first: str,
    form: str,
    name: str | None,
    layer: str,
    op: str,
    inputs: str,
    shape: str | None,
    size: int | None,
) -> None:
    failure = only(first + keras_log(form, layer, op, inputs))
    assert failure.request == Request(size, op, shape, "GPU:0", layer=name or layer)
    assert failure.device == "GPU:0"
    assert any("Keras logs its type" in note for note in failure.notes) == (name is None)
    assert any("The size is inferred" in note for note in failure.notes) == (size is not None)


def test_calls_of_two_layers_with_one_op_are_not_told_apart() -> None:
    calls = [
        keras_log(KERAS_3, "Activation", "Sigmoid", ONE.replace("16", batch))
        for batch in ("16", "64")
    ]
    failure = only(*calls)
    assert failure.request == Request(op="Sigmoid", device="GPU:0")
    cut = calls[0][: calls[0].index("Arguments")]
    assert only(cut).request == Request(op="Sigmoid", device="GPU:0")
    sized = keras_log(KERAS_3, "Conv2D", "Conv2D", ONE).replace(
        "failed to allocate memory", "OOM when allocating tensor with shape[8] and type float"
    )
    assert only(sized).request == Request(
        32, "Conv2D", "[8] float", "GPU:0", eager=True, layer="Conv2D"
    )


@pytest.mark.parametrize("name", ["gpu_host_bfc", "cuda_host_bfc"])
@pytest.mark.parametrize("version", ["1.4", "2.3", "2.21"])
def test_pinned_memory_is_a_device_of_its_own(version: str, name: str) -> None:
    message = MESSAGE.replace("GPU:0", "CPU:0").replace("GPU_0_bfc", name)
    for lines in ([*make_log(version, name=name), message], make_log(version, name=name)):
        failure = only(*lines)
        assert failure.device == name and failure.map is not None and failure.map.device == name
        event = OomEvent("", "failed", name, 0.0, requested_bytes=6040)
        sentences = post_mortem(event, failure.map).not_available
        assert any("pinned host memory: RAM" in sentence for sentence in sentences)

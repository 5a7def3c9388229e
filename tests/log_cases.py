"""Logs of failed allocations in the wordings of several TensorFlow releases."""

KIB = 1 << 10
END = 2**64 - 1
# (size of the region, chunks as (address, size, in use))
REGIONS = [
    (8 * KIB, [(0x7F0000000040, 4 * KIB, True), (0x7F0000001040, 4 * KIB, False)]),
    (
        16 * KIB,
        [
            (0x7F1000000040, 1 * KIB, True),
            (0x7F1000000440, 3 * KIB, False),
            (0x7F1000001040, 12 * KIB, True),
        ],
    ),
]
ALL = [chunk for _, chunks in REGIONS for chunk in chunks]
PREFIXES = {
    "1.0": "I tensorflow/core/common_runtime/bfc_allocator.cc:678] ",
    "1.4": "2017-11-06 08:55:24.919712: I tensorflow/core/common_runtime/bfc_allocator.cc:627] ",
    "1.15": "2019-09-23 13:19:36.310831: I tensorflow/core/common_runtime/bfc_allocator.cc:905] ",
    "2.3": "2020-09-23 13:19:36.310831: I tensorflow/core/common_runtime/bfc_allocator.cc:905] ",
    "2.8": "2022-05-11 02:33:29.246930: I tensorflow/core/common_runtime/bfc_allocator.cc:1066] ",
    "2.21": "I0000 00:00:1795171370.207011   15514 bfc_allocator.cc:1105] ",
}


EARLY = ("1.0", "1.4")
"""Releases that list a region's chunks in use before its free ones."""


def chunk_line(version: str, chunk: tuple[int, int, bool], following: int) -> str:
    address, size, in_use = chunk
    state = "InUse" if in_use else "Free "
    if version in EARLY:
        return f"{'Chunk' if in_use else 'Free'} at 0x{address:x} of size {size}"
    if version == "1.15":
        return f"{'Chunk' if in_use else 'Free '} at 0x{address:x} of size {size}"
    if version == "2.3":
        return f"{state} at 0x{address:x} next {following} of size {size}"
    return f"{state} at {address:x} of size {size} next {following}"


def make_log(
    version: str, name: str = "GPU_0_bfc", op: str = "model/dense/MatMul", thread: str = "15514"
) -> list[str]:
    """The lines of one failure of 6 KiB as that release words them; taken from its
    bfc_allocator.cc."""
    asked = f"Allocator ({name}) ran out of memory trying to allocate 5.9KiB"
    first = {
        "1.0": "",
        "1.4": f"{asked}.  Current allocation summary follows.",
        "1.15": f"{asked} (rounded to 6144).  Current allocation summary follows.",
        "2.3": f"{asked} (rounded to 6144)",
        "2.8": f"{asked} (rounded to 6144)requested by op {op}",
        "2.21": f"{asked} (rounded to 6144)requested by op {op}",
    }[version]
    lines = ([first] if first else []) + (
        [] if version in EARLY else [f"BFCAllocator dump for {name}"]
    )
    lines += ["Bin (1024): \tTotal Chunks: 1, Chunks in use: 1. 1.0KiB allocated for chunks."]
    lines += ["Bin (2048): \tTotal Chunks: 1, Chunks in use: 0. 3.0KiB allocated for chunks."]
    lines += ["Bin (4096): \tTotal Chunks: 2, Chunks in use: 1. 8.0KiB allocated for chunks."]
    lines += ["Bin (8192): \tTotal Chunks: 1, Chunks in use: 1. 12.0KiB allocated for chunks."]
    lines += ["Bin for 6.0KiB was 4.0KiB, Chunk State: "]
    lines += [
        "  Size: 4.0KiB | Requested Size: 2.0KiB | in_use: 0 | bin_num: 4, prev:   Size: 4.0KiB"
    ]
    number = 0
    for size, chunks in REGIONS:
        if version not in (*EARLY, "1.15"):
            lines.append(f"Next region of size {size}")
        if version in EARLY:
            chunks = sorted(chunks, key=lambda chunk: not chunk[2])
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
            "Total size in pool: 24.0KiB memory_limit_: 24.0KiB available size: 0B "
            "curr_region_allocation_bytes_: 1"
        ]
    limit = "24576" if version in (*EARLY, "1.15", "2.3") else "24.0KiB"
    prefixed = [PREFIXES[version].replace("15514", thread) + line for line in lines]
    prefixed += [
        PREFIXES[version].replace("15514", thread) + "Stats: ",
        f"Limit:    {limit}",
        "InUse:    17408",
        "",
    ]
    if version == "1.0":
        end = "W tensorflow/core/common_runtime/bfc_allocator.cc:27"
        prefixed += [
            f"{end}4] ****xxxx",
            f"{end}5] Ran out of memory trying to allocate 5.9KiB.  See logs for memory state.",
        ]
    return prefixed


MESSAGE = (
    "W tensorflow/core/framework/op_kernel.cc:1] OP_REQUIRES failed at x.cc:1 : Resource "
    "exhausted: OOM when allocating tensor with shape[10,151] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
)

_NODE = (
    "\t [[Node: conv1/Conv2D = Conv2D[T=DT_FLOAT, "
    'data_format="NHWC", '
    'padding="SAME", '
    "strides=[1, "
    "4, 4, 1], "
    "use_cudnn_on_gpu=true, "
    '_device="/job:localhost/replica:0/task:0/gpu:0"](Variable/read, '
    "conv1/weights/read)]]"
)
EARLY_MESSAGE = [
    "W tensorflow/core/framework/op_kernel.cc:993] Resource exhausted: OOM when allocating "
    "tensor with shape[10,151]",
    "Traceback (most recent call last):",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor "
    "with shape[10,151]",
    _NODE,
    "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with "
    "shape[10,151]",
    _NODE,
]
"""How TensorFlow 1.0 to 1.4 report the failure: the shape without its type, and the node with its
device."""

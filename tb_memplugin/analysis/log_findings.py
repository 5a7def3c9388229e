"""What a log says about memory that TensorFlow's allocators do not manage: that of CUDA libraries
and the driver, host memory, PyTorch's, and XLA's plan."""

import itertools
import re
from typing import NamedTuple

from tb_memplugin.schema import format_bytes

MAX_TEXTS, MAX_BUFFERS = 4, 3  # most in one sentence
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20}


class _Message(NamedTuple):
    """A pattern and a sentence with the pattern's groups.

    Group ``b_x`` holds a size in bytes, ``k_x`` in KiB, ``m_x`` in MiB. ``all_x`` stands for the
    different texts of all matches, with those of ``all_x1`` and so on; the other groups are of the
    match with the largest sizes, or of the first one."""

    pattern: str
    sentence: str


class _Kind(NamedTuple):
    """Messages with the same advice.

    Attributes:
        words: A log without all of these has none of the messages; searching for words is fast.
        says: Of these, the first one that a log has counts; without any, the kind is absent.
        adds: Of these, all that a log has."""

    words: tuple[str, ...]
    says: tuple[_Message, ...]
    advice: str
    adds: tuple[_Message, ...] = ()


_SIZE = r"[\d.]{1,10} ?[KMGT]?i?B"
_NEXT = r"[^\n]{0,2000}\n[^\n]{0,400}?"
"""The rest of a line, and what a launcher puts before the next one."""

_STATUS = (
    r"(?<!destroy cudnn handle: )\b"
    r"(?P<all_status>CU(?:DNN|BLAS|FFT|SOLVER|SPARSE|RAND)_(?:STATUS_)?"
)
_HOLDER = (
    "found no memory on the GPU outside TensorFlow's pool. The pool holds it, or something outside "
    "TensorFlow."
)
_MOSTLY = (
    "Mostly such a library found no memory on the GPU outside TensorFlow's pool; otherwise, the "
    "versions of driver, CUDA and cuDNN do not fit together."
)
_GPU = (
    _Message(
        r"Memory usage: (?P<b_free>\d{1,15}) bytes free, (?P<b_total>\d{1,15}) bytes total",
        "The GPU had {b_free} of {b_total} free.",
    ),
    _Message(
        r"otal memory reported: (?P<b_total>\d{1,15})"
        rf"|(?:deviceMemorySize|[tT]otal ?[mM]emory): (?P<total>{_SIZE})",
        "The GPU has {total}{b_total}.",
    ),
    _Message(
        r"Created (?:TensorFlow )?device \(?\S{0,200}device:(?P<device>GPU:\d{1,4}) "
        r"with (?P<pool>(?P<m_pool>\d{1,9})) MB memory",
        "TensorFlow's pool of {device} may take {pool} MiB ({m_pool}).",
    ),
)
_SMALLER_POOL = (
    "Leave memory outside the pool: tf.config.experimental.set_memory_growth(gpu, True) before the "
    "first tensor, or a smaller memory_limit in tf.config.set_logical_device_configuration. "
    "`nvidia-smi` lists what else uses the GPU."
)
_LIBRARIES = _Kind(
    ("CUDNN", "CUBLAS", "CUFFT", "CUSO", "CUSP", "CURAND", "create cu", "DNN ", "Blas", "BLAS"),
    (
        _Message(
            rf"{_STATUS}\w{{0,40}}?(?<!HOST_)ALLOC(?:ATION)?_FAILED)",
            f"{{all_status}}: a CUDA library (cuDNN, cuBLAS) {_HOLDER}",
        ),
        _Message(
            r"create cu(?P<name>\w{1,10}) handle: the resource allocation failed",
            f"cu{{name}} {_HOLDER}",
        ),
        _Message(
            rf"{_STATUS}(?:NOT_INITIALIZED|INTERNAL_ERROR))\b",
            f"{{all_status}}: a CUDA library (cuDNN, cuBLAS) could not be used. {_MOSTLY}",
        ),
        _Message(
            r"cuDNN failed to initialize|cuDNN launch failure"
            r"|DNN library (?:initialization failed|is not found)"
            r"|Blas \w{1,20} launch failed|without BLAS support|create cu\w{1,10} handle",
            f"cuDNN or cuBLAS could not be used; the log lacks the reason. {_MOSTLY}",
        ),
    ),
    _SMALLER_POOL,
    _GPU,
)
_DRIVER = _Kind(
    ("from device", "_OUT_OF_MEMORY", "OutOfMemory", "MemoryAllocation", "out of memory"),
    (
        _Message(
            r"failed to allocate \S{1,20} ?\w{0,3} ?\((?P<b_size>\d{1,15}) bytes\) from device",
            "The GPU had no {b_size} free for another region of TensorFlow's pool, which then "
            "tries smaller ones.",
        ),
        _Message(
            r"^(?![^\n]{0,400}\b(?:host|cuMemAllocAsync)\b)[^\n]{0,400}?"
            r"(?P<all_error>CUDA_ERROR_OUT_OF_MEMORY"
            r"|HIP_ERROR_OutOfMemory|hipErrorOutOfMemory|cudaErrorMemoryAllocation"
            r"|CUDA error: out of memory|Status: out of memory"
            r"|cuda runtime error \(2\) : out of memory)",
            "{all_error}: the driver found no memory on the GPU outside TensorFlow's pool.",
        ),
    ),
    _SMALLER_POOL,
    _GPU,
)

_SCRATCH = _Kind(
    ("No algorithm worked!",),
    (
        _Message(
            "No algorithm worked!",
            "No algorithm of a convolution worked, mostly for want of scratch space in the pool.",
        ),
    ),
    "Use a smaller batch, or a larger pool.",
)

_BATCHES = (
    "Do not put the whole data set into one tensor: read it in batches from files or a generator "
    "(tf.data), or give the job more RAM."
)
_PINNED = _Kind(
    ("pinned host memory", "failed to alloc", "_host_bfc"),
    (
        _Message(
            r"(?:pinned host memory of size:? |failed to alloc(?:ate)? (?:\S{1,20} \()?"
            r"(?=\d{1,15} bytes\)? (?:on|from) host))(?P<size>(?P<b_size>\d{1,15}))",
            "The host refused regions of up to {b_size} ({size} bytes) to the pool of pinned host "
            "memory: RAM for transfers to GPUs, not memory of a GPU.",
        ),
        _Message(
            r"llocator \(?\w{1,20}_host_bfc\b",
            "A request was for pinned host memory: RAM for transfers to GPUs, not memory of a GPU.",
        ),
    ),
    _BATCHES,
)
_RAM = (
    "Host memory is RAM, not memory of a GPU: read data in batches instead of whole arrays, "
    "use smaller shuffle() and prefetch() buffers, no cache() in memory and fewer workers, or give "
    "the job more RAM. `tb-memplugin run PROGRAM.py` records host RSS over the steps."
)
_PROCESS = r"process (?P<pid>\d{1,10})(?:, UID \d{1,10},)? \((?P<name>[^()\n]{1,40})\)"
_KILLED = _Kind(
    (
        *("illed", "xit", "137", "oom", "OOM", "SIGKILL", "signal", "status=9", "Exceeded"),
        *("ut of memory", "Out Of Memory", "OUT_OF_MEMORY", "low on resource"),
        *("TERM_MEMLIMIT", "available RAM", "than is available"),
    ),
    (
        _Message(
            rf"Killed {_PROCESS}[^\n]{{0,80}}?total-vm:\d{{1,15}}kB, "
            r"anon-rss:(?P<k_rss>\d{1,12})kB",
            "The kernel's OOM killer ended process {pid} ({name}), which held {k_rss} of RAM "
            "(anon-rss).",
        ),
        _Message(
            rf"ut of memory: Kill(?:ed)? {_PROCESS}",
            "The kernel's OOM killer ended process {pid} ({name}).",
        ),
        _Message(
            r"oom-kill:[^\n]{0,400}?task=(?P<name>[^,\n]{1,40}),pid=(?P<pid>\d{1,10})",
            "The kernel's OOM killer ended process {pid} ({name}).",
        ),
        _Message(
            r"(?P<all_words>invoked oom-killer|oom[-_]kill(?:er)? event|OOM [Kk]ill"
            r"|OOMKilled(?!\"?: ?false)|Exceeded (?:job|step) memory limit|(?<!\w)OUT_OF_MEMORY"
            r"|: Out Of Memory|cgroup out-of-memory handler|low on resource: memory|TERM_MEMLIMIT"
            r"|killed: mem \w{1,20} exceeded limit|using all available RAM"
            r"|killed due to (?:memory pressure|the node running low)"
            r"|tried to allocate more memory than is available)",
            "A process was ended because the memory of the machine, or the limit of its job or "
            "container, was used up ({all_words}).",
        ),
        _Message(
            r"^(?:[^\n]{0,80}[:|>\]F] *)?(?P<all_words>Killed)(?:: 9)?[ \r]*$"
            r"|(?:line \d{1,9}: +\d{1,10}|^\[\d{1,4}\][^\n]{0,20}) "
            r"(?P<all_words1>[Kk]illed)(?:: 9)? +\S"
            r"|(?P<all_words2>zsh: killed|exit ?code\W{1,4}-9\b|SIGKILL|signal:? (?:9\b|Killed)"
            r"|status=9/KILL|\] Error 137\b|(?i:exit(?:ed|s)?(?: with)?(?: non-zero)?(?: exit)?"
            r" ?(?:code|status)?\W{0,8}\b137\b))",
            "SIGKILL ended a process ({all_words}), as the kernel's OOM "
            "killer sends it if host memory runs out; a person or a time limit may have sent it as "
            "well. `dmesg -T | grep -i 'killed process'` or the scheduler's report on the job "
            "shows which.",
        ),
    ),
    _RAM,
    (
        _Message(
            r"memory: usage \d{1,15}kB, limit (?P<k_limit>\d{1,12})kB",
            "The limit of its job or container (cgroup) is {k_limit}.",
        ),
        _Message(
            r"Memory cgroup out of memory|CONSTRAINT_MEMCG|killed as a result of limit of",
            "The limit of its job or container (cgroup) was reached, not that of the machine.",
        ),
        _Message(r"CONSTRAINT_NONE|global_oom", "The memory of the whole machine was used up."),
    ),
)
_HOST = _Kind(
    (
        "Unable to allocate",
        "CPUAllocator",
        "bad_alloc",
        "Cannot allocate",
        "MemoryError",
        "paging file",
    ),
    (
        _Message(
            rf"Unable to allocate (?P<size>{_SIZE}) for an array with shape "
            r"(?P<shape>\([\d, ]{1,200}\)) and data type (?P<type>\w{1,20})",
            "NumPy found no host memory for an array of {size}, {shape} {type}.",
        ),
        _Message(
            r"DefaultCPUAllocator: [^\n]{0,80}?tried to allocate (?P<b_size>\d{1,15}) bytes",
            "PyTorch found no host memory for {b_size}.",
        ),
        _Message(
            r"(?P<all_error>std::bad_alloc|\[Errno 12\] Cannot allocate memory"
            r"|The paging file is too small)"
            r"|^(?:[\w.]{1,60}\.)?_?(?P<all_type>(?:Array)?MemoryError)\b",
            "{all_error}{all_type}: the program found no host memory.",
        ),
    ),
    _RAM,
)
_LARGE = _Kind(
    ("system memory",),
    (
        _Message(
            r"Allocation of (?P<b_size>\d{1,15}) exceeds \d{1,3}% of (?:free )?system memory",
            "TensorFlow warned of large allocations in host memory, of up to {b_size}: by itself, "
            "that is no failure.",
        ),
    ),
    _RAM,
)
_TRIED = rf"out of memory\. Tried to allocate (?P<size>{_SIZE})"
_PYTORCH = _Kind(
    ("Tried to allocate",),
    (
        _Message(
            rf"{_TRIED}\.?\s{{1,80}}\(?GPU (?P<gpu>\d{{1,4}})"
            rf"(?:;| has a total capac\w{{1,4}} of) (?P<total>{_SIZE})",
            "PyTorch found no memory for {size} on GPU {gpu}, which has {total}.",
        ),
        _Message(_TRIED, "PyTorch found no memory for {size} on a GPU."),
    ),
    "PyTorch's allocator is not TensorFlow's: torch.cuda.memory_summary() and "
    "torch.cuda.memory._dump_snapshot() show what it holds. If TensorFlow uses the same GPU, keep "
    "its pool small: tf.config.experimental.set_memory_growth(gpu, True).",
    (
        _Message(
            rf"of which (?P<size>{_SIZE}) is free|; (?P<older>{_SIZE}) free;",
            "{size}{older} were free.",
        ),
        _Message(
            rf"(?P<older>{_SIZE}) already allocated"
            rf"|memory (?P<size>{_SIZE}) is allocated by PyTorch",
            "PyTorch's tensors held {size}{older}.",
        ),
        _Message(
            rf"(?P<size>{_SIZE})\s{{1,4}}is reserved by PyTorch but unallocated",
            "{size} were reserved by PyTorch but unallocated.",
        ),
        _Message(
            rf"Process (?P<pid>\d{{1,10}}) has (?P<size>{_SIZE}) memory in use",
            "Another process ({pid}) held {size}.",
        ),
    ),
)
_XLA = _Kind(
    ("temp allocation", "memory space"),
    (
        _Message(
            r"Ran out of memory in memory space (?P<space>\w{1,20})\. "
            r"Used (?P<used>[\d.]{1,10}\w?) of (?P<total>[\d.]{1,10}\w?) ",
            "XLA's compiler needs {used} of memory space {space}, which has {total}.",
        ),
        _Message(
            rf"parameter allocation: +(?P<parameters>{_SIZE}){_NEXT}"
            rf"constant allocation: +(?P<constants>{_SIZE}){_NEXT}"
            rf"maybe_live_out allocation: +(?P<results>{_SIZE}){_NEXT}"
            rf"preallocated temp allocation: +(?P<temporaries>{_SIZE})",
            "XLA's buffer assignment: parameters {parameters}, constants {constants}, results "
            "{results}, temporaries {temporaries}.",
        ),
    ),
    "Its temporaries mostly grow with the batch size.",
)
_KINDS = (_LIBRARIES, _SCRATCH, _DRIVER, _PINNED, _KILLED, _HOST, _LARGE, _PYTORCH, _XLA)

_BUFFER = re.compile(
    rf"Size: (?P<size>{_SIZE}){_NEXT}"
    rf'(?:Operator: [^\n]{{0,80}}?op_name="(?P<op>[^"\n[;]{{0,200}}){_NEXT})?'
    r"(?:XLA Label: (?P<label>[^\n]{1,80})\n[^\n]{0,400}?Shape|Entry Parameter Subshape): "
    r"(?P<shape>[^\n{]{1,80})"
)
"""One of the peak buffers that XLA lists, the largest first."""


def log_findings(text: str) -> list[str]:
    """The meaning of what a log has besides failed allocations, each with the next step."""
    found: list[str] = []
    for kind in _KINDS:
        if not any(word in text for word in kind.words):
            continue
        says = next(filter(None, (_said(text, one) for one in kind.says)), None)
        if says is not None:
            more = [*(_said(text, one) for one in kind.adds), kind.advice]
            new = (one for one in more if one and not any(one in known for known in found))
            found.append(" ".join((says, *new)))
    buffers = [
        f"{one['size']} {one['shape'].strip()} ({one['op'] or one['label'] or 'parameter'})"
        for one in itertools.islice(_BUFFER.finditer(text), MAX_BUFFERS)
    ]
    return (
        [*found, f"XLA's largest buffers at its peak: {', '.join(buffers)}."] if buffers else found
    )


def _said(text: str, message: _Message) -> str | None:
    """The message's sentence with what its matches hold; None without a match."""
    best, largest = None, -1
    of_all: dict[str, dict[str, None]] = {}
    for match in re.finditer(message.pattern, text, re.MULTILINE):
        values, total = match.groupdict(""), 0
        for name, value in values.items():
            unit = _UNITS.get(name.partition("_")[0])
            if unit is not None and value:
                size = int(value) * unit
                total, values[name] = total + size, format_bytes(size)
            elif name.startswith("all_") and value:
                texts = of_all.setdefault(name.rstrip("0123456789"), {})
                if len(texts) < MAX_TEXTS:
                    texts[value] = None
        if total > largest:
            best, largest = values, total
    if best is None:
        return None
    joined = {name: ", ".join(texts) for name, texts in of_all.items()}
    return message.sentence.format_map({**best, **joined})

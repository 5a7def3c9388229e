"""Messages about memory that TensorFlow's allocators do not manage, in the wordings of several
releases of TensorFlow, PyTorch, XLA and Linux."""

import time

import pytest

from tb_memplugin.analysis import log_findings

CREATED = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1406] Created TensorFlow device "
    "(/job:localhost/replica:0/task:0/device:GPU:0 with 4642 MB memory) -> physical GPU (device: 0)"
)
CREATED_LATER = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1929] Created device "
    "/job:localhost/replica:0/task:0/device:GPU:1 with 21465 MB memory:  -> device: 1, name: N"
)
OUTSIDE = "found no memory on the GPU outside TensorFlow's pool"
MOSTLY = "Mostly such a library"


def only(text: str) -> str:
    (finding,) = log_findings(text)
    return finding


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        (
            "E tensorflow/stream_executor/cuda/cuda_dnn.cc:328] Could not create cudnn handle: "
            "CUDNN_STATUS_ALLOC_FAILED",
            ["CUDNN_STATUS_ALLOC_FAILED: a CUDA library", OUTSIDE],
        ),
        (
            "E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: "
            "CUBLAS_STATUS_ALLOC_FAILED",
            ["CUBLAS_STATUS_ALLOC_FAILED", OUTSIDE],
        ),
        (
            "E external/local_xla/xla/stream_executor/cuda/cuda_blas.cc:190] failed to create "
            "cublas handle: the resource allocation failed",
            ["cublas", OUTSIDE],
        ),
        ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", [OUTSIDE]),
        (
            "E c:\\tf_jenkins\\cuda_blas.cc:464] failed to create cublas handle: "
            "CUBLAS_STATUS_NOT_INITIALIZED\nE x.cc:371] could not create cudnn handle: "
            "CUDNN_STATUS_INTERNAL_ERROR",
            ["CUBLAS_STATUS_NOT_INITIALIZED, CUDNN_STATUS_INTERNAL_ERROR:", MOSTLY],
        ),
        (
            "E xla/stream_executor/cuda/cuda_dnn.cc:439] Could not create cudnn handle: "
            "CUDNN_STATUS_NOT_INITIALIZED\nE xla/stream_executor/cuda/cuda_dnn.cc:443] Memory "
            "usage: 12124160 bytes free, 8361279488 bytes total.",
            [MOSTLY, "The GPU had 11.6 MiB of 7.8 GiB free."],
        ),
        (
            "UnknownError:  Failed to get convolution algorithm. This is probably because cuDNN "
            "failed to initialize, so try looking to see if a warning log message was printed",
            ["the log lacks the reason", MOSTLY],
        ),
        ("FAILED_PRECONDITION: DNN library initialization failed. Look at the errors", [MOSTLY]),
        ("InternalError: cuDNN launch failure : input shape ([16,64,112,112])", [MOSTLY]),
        ("InternalError: Blas GEMM launch failed : a.shape=(1, 2), b.shape=(2, 3)", [MOSTLY]),
    ],
)
@pytest.mark.parametrize(
    ("created", "pool"),
    [
        ("", None),
        (CREATED, "TensorFlow's pool of GPU:0 may take 4642 MiB (4.5 GiB)."),
        (CREATED_LATER, "TensorFlow's pool of GPU:1 may take 21465 MiB (21.0 GiB)."),
    ],
)
def test_a_cuda_library_without_memory_is_not_within_the_pool(
    line: str, sentences: list[str], created: str, pool: str | None
) -> None:
    finding = only(f"{created}\n{line}\n")
    assert all(sentence in finding for sentence in [*sentences, "set_memory_growth(gpu, True)"])
    assert (pool is None) == ("may take" not in finding) and (pool or "") in finding
    assert "process" not in finding  # the log names none


def test_algorithms_without_scratch_space() -> None:
    assert "scratch space in the pool" in only(
        "NotFoundError: No algorithm worked!  Error messages:"
    )


def test_a_handle_that_could_not_be_destroyed_says_nothing() -> None:
    assert log_findings("could not destroy cudnn handle: CUDNN_STATUS_NOT_INITIALIZED") == []


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "failed to allocate 3.51G (3768833792 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out"
            " of memory\nfailed to allocate 3.90G (4187593216 bytes) from device: "
            "CUDA_ERROR_OUT_OF_MEMORY: out of memory\ncoreCount: 30 deviceMemorySize: 6.00GiB",
            ["The GPU had no 3.9 GiB free for another region", "The GPU has 6.00GiB."],
        ),
        (
            "failed to allocate 154.06GiB (165425291480 bytes) from device: HIP_ERROR_OutOfMemory",
            ["The GPU had no 154 GiB free"],
        ),
        (
            "failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to"
            " cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory "
            "reported: 8589410304",
            ["CUDA_ERROR_OUT_OF_MEMORY: the driver found no memory", "The GPU has 8.0 GiB."],
        ),
        (
            "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
            ["the driver found no memory"],
        ),
        ("RuntimeError: CUDA error: out of memory", ["the driver found no memory"]),
    ],
)
def test_memory_that_the_driver_refused(text: str, sentences: list[str]) -> None:
    finding = only(text)
    assert all(sentence in finding for sentence in [*sentences, "nvidia-smi"])
    assert "process" not in finding


@pytest.mark.parametrize(
    "text",
    [
        "cuda_driver.cc:802] failed to alloc 34359738368 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: "
        "out of memory\nW device_host_allocator.h:46] could not allocate pinned host memory of "
        "size: 30923763712",
        "W ./tensorflow/core/common_runtime/gpu/pool_allocator.h:195] could not allocate pinned "
        "host memory of size: 34359738368",
        "Failed to allocate pinned host memory of size 34359738368",
    ],
)
def test_pinned_memory_is_the_hosts(text: str) -> None:
    finding = only(text)
    assert "regions of up to 32.0 GiB (34359738368 bytes) to the pool of pinned host" in finding
    assert "not memory of a GPU" in finding and "the whole data set into one tensor" in finding


KILLED = "The kernel's OOM killer ended process 991 (python3)"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "[1.2] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
            "global_oom,task_memcg=/user.slice,task=python3,pid=991,uid=0\n[1.3] Out of memory: "
            "Killed process 991 (python3) total-vm:53312244kB, anon-rss:31451456kB, file-rss:7kB, "
            "shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0",
            [f"{KILLED}, which held 30.0 GiB of RAM", "The memory of the whole machine"],
        ),
        (
            "[  687.29] python3 invoked oom-killer: gfp_mask=0x24280ca, order=0\n[  687.30] Out of "
            "memory: Kill process 991 (python3) score 912 or sacrifice child\n[  687.31] Killed "
            "process 991 (python3) total-vm:20312244kB, anon-rss:7451456kB, file-rss:748kB",
            [f"{KILLED}, which held 7.1 GiB of RAM"],
        ),
        ("Out of memory: Kill process 991 (python3) score 912 or sacrifice child", [KILLED]),
        (
            "Killed process 991 (python3), UID 1000, total-vm:20312244kB, anon-rss:7451456kB, "
            "file-rss:0kB",
            [f"{KILLED}, which held 7.1 GiB of RAM"],
        ),
        (
            "kernel: memory: usage 8388608kB, limit 8388608kB, failcnt 5\nkernel: Memory cgroup "
            "out of memory: Killed process 991 (python3) total-vm:22388608kB, anon-rss:8100000kB",
            [KILLED, "cgroup) is 8.0 GiB.", "not that of the machine"],
        ),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=991,uid=0", [KILLED, "cgroup)"]),
    ],
)
def test_a_process_that_the_kernel_killed(text: str, sentences: list[str]) -> None:
    finding = only(text)
    assert all(sentence in finding for sentence in [*sentences, "Host memory is RAM"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Killed", "Killed"),
        ("worker_1  | Killed", "Killed"),
        ("2021-03-01T10:00:00Z stderr F Killed", "Killed"),
        ("python train.py: Killed: 9", "Killed"),
        ("script: line 28:  8156 Killed                  python3 main.py", "Killed"),
        ("[1]+  Killed                  python train.py", "Killed"),
        ("[1]    12345 killed     python train.py", "killed"),
        ("command terminated with exit code 137", "exit code 137"),
        ("Process finished with exit code 137 (interrupted by signal 9: SIGKILL)", "SIGKILL"),
        ("trainer exited with code 137", "exited with code 137"),
        ("returned non-zero exit status 137.", "exit status 137"),
        ("      Exit Code:    137", "Exit Code:    137"),
        ("make: *** [train] Error 137", "Error 137"),
        ("  exitcode  : -9 (pid: 12)", "exitcode  : -9"),
        ("died with <Signals.SIGKILL: 9>.", "SIGKILL"),
        ("DataLoader worker (pid 123) is killed by signal: Killed.", "signal: Killed"),
        ("Main process exited, code=killed, status=9/KILL", "status=9/KILL"),
    ],
)
def test_what_sigkill_leaves_need_not_be_for_want_of_memory(line: str, words: str) -> None:
    finding = only(f"Epoch 1/3\n{line}\n")
    assert finding.startswith("SIGKILL ended a process (") and words in finding
    assert "may have sent it as well" in finding and "dmesg" in finding


@pytest.mark.parametrize(
    "line",
    [
        "    Reason:       OOMKilled",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your "
        "processes may have been killed by the cgroup out-of-memory handler.",
        "slurmstepd: error: Exceeded job memory limit at some point.",
        "srun: error: gpu01: task 0: Out Of Memory",
        "State: OUT_OF_MEMORY (exit code 0)",
        '"OOMKilled": true,',
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "=>> PBS: job killed: mem 12345kb exceeded limit 1234kb",
        "Your session crashed after using all available RAM.",
        "Your notebook tried to allocate more memory than is available. It has restarted.",
        "The node was low on resource: memory.",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "systemd[1]: x.service: A process of this unit has been killed by the OOM killer.",
    ],
)
def test_a_limit_that_ended_a_job(line: str) -> None:
    finding = only(line)
    assert "the limit of its job or container, was used up" in finding
    assert "Host memory is RAM" in finding


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "cpu_allocator_impl.cc:82] Allocation of 1719885011 exceeds 10% of free system memory."
            "\nAllocation of 17198850112 exceeds 10% of system memory.",
            "of up to 16.0 GiB: by itself, that is no failure",
        ),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 26.9 GiB for an array "
            "with shape (14408, 624, 804, 1) and data type float32",
            "an array of 26.9 GiB, (14408, 624, 804, 1) float32",
        ),
        ("Traceback (most recent call last):\nMemoryError", "MemoryError: the program found no"),
        ("  what():  std::bad_alloc", "std::bad_alloc: the program found no host memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "Cannot allocate memory: the program"),
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 17198850112 bytes.",
            "PyTorch found no host memory for 16.0 GiB",
        ),
    ],
)
def test_host_memory_that_ran_out(text: str, sentence: str) -> None:
    finding = only(text)
    assert sentence in finding and "Host memory is RAM, not memory of a GPU" in finding


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total "
            "capacity; 5.76 GiB already allocated; 19.56 MiB free; 6.10 GiB reserved in total by "
            "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb",
            ["20.00 MiB on GPU 0, which has 7.79 GiB.", "19.56 MiB were free.", "held 5.76 GiB"],
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 472.00 MiB. GPU 1 "
            "has a total capacty of 23.70 GiB of which 114.56 MiB is free. Including non-PyTorch "
            "memory, this process has 23.58 GiB memory in use. Of the allocated memory 18.26 GiB "
            "is allocated by PyTorch, and 3.69 GiB is reserved by PyTorch but unallocated.",
            ["472.00 MiB on GPU 1, which has 23.70 GiB. 114.56 MiB were free.", "held 18.26 GiB"],
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.\nGPU 0 has a "
            "total capacity of 31.36 GiB of which 471.69 MiB is free.\nProcess 19239 has 14.26 GiB "
            "memory in use.\nOf the allocated memory 15.03 GiB is allocated by PyTorch, and 1.00 "
            "GiB\nis reserved by PyTorch but unallocated.",
            ["on GPU 0", "Another process (19239) held 14.26 GiB.", "1.00 GiB were reserved"],
        ),
        ("HIP out of memory. Tried to allocate 2.00 GiB", ["no memory for 2.00 GiB on a GPU"]),
    ],
)
def test_a_failed_allocation_of_pytorch(text: str, sentences: list[str]) -> None:
    finding = only(text)
    assert all(sentence in finding for sentence in [*sentences, "torch.cuda.memory_summary()"])
    assert ("Another process" in finding) == ("Process 19239" in text)


PEAK = """BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    1.02GiB
              constant allocation:         0B
        maybe_live_out allocation:    4.89GiB
     preallocated temp allocation:    1.97GiB
  preallocated temp fragmentation:         0B (0.00%)
                 total allocation:    7.88GiB
Peak buffers:
\tBuffer 1:
\t\tSize: 4.89GiB
\t\tOperator: op_type="MatMul" op_name="model/dense/MatMul" source_file="x.py" source_line=175
\t\tXLA Label: custom-call
\t\tShape: f32[5104,257152]
\t\t==========================

\tBuffer 2:
\t\tSize: 1.96GiB
\t\tOperator: op_name="jit(f)/jit(main)/dot_general[dimension_numbers=(((2,), (0,)), ((), ()))]"
\t\tXLA Label: fusion
\t\tShape: f32[2048,257152]{1,0}
\t\t==========================

\tBuffer 3:
\t\tSize: 1004.50MiB
\t\tEntry Parameter Subshape: f16[2048,257152]
\t\t==========================

\tBuffer 4:
\t\tSize: 16B
\t\tXLA Label: custom-call
\t\tShape: (f32[5104,257152], s8[4194304])
\t\t==========================
"""


@pytest.mark.parametrize("prefix", ["", "2020-05-04 09:05:40.721128: E    1578 xla_util.cc:76] "])
def test_xlas_plan_and_its_largest_buffers(prefix: str) -> None:
    plan, buffers = log_findings("\n".join(prefix + line for line in PEAK.splitlines()))
    assert "parameters 1.02GiB, constants 0B, results 4.89GiB, temporaries 1.97GiB." in plan
    assert buffers == (
        "XLA's largest buffers at its peak: 4.89GiB f32[5104,257152] (model/dense/MatMul), 1.96GiB "
        "f32[2048,257152] (jit(f)/jit(main)/dot_general), 1004.50MiB f16[2048,257152] (parameter)."
    )


def test_a_buffer_without_an_operator_has_xlas_label() -> None:
    buffer = PEAK[PEAK.index("\tBuffer 4") :]
    assert only(buffer).endswith("16B (f32[5104,257152], s8[4194304]) (custom-call).")


def test_memory_that_a_program_needs_on_a_tpu() -> None:
    finding = only(
        "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.10G of "
        "15.48G hbm. Exceeded hbm capacity by 4.62G."
    )
    assert "needs 20.10G of memory space hbm, which has 15.48G." in finding


def test_other_lines_say_nothing_and_advice_is_given_once() -> None:
    others = (
        '"OOMKilled": false\nEpoch 3/10\n'
        "all done, 137 steps, exit\nSignal processing killed noise\nkilled 5 foes"
    )
    assert log_findings(f"{others}\nfailed to connect\nno memory problems") == []
    cudnn, driver = log_findings(
        f"{CREATED}\ncould not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\nfailed to allocate "
        "2.20GiB (2362232064 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    )
    assert "set_memory_growth" in cudnn and "may take 4642 MiB" in cudnn
    assert "set_memory_growth" not in driver and "may take" not in driver


@pytest.mark.parametrize(
    "part",
    [
        *("a.", " ", "Killed ", "exit ", "Size: 1B\n", "failed to allocate ", "MemoryError."),
        *("CUDNN_", "Out of memory: Killed process 1 (a ", "parameter allocation: 1B\n", ": "),
        *("oom-kill:", "out of memory. Tried to allocate 1B ", "Memory usage: 1 bytes free, "),
        *(
            "Created device ",
            'Size: 1B\nOperator: op_name="',
            "Unable to allocate 1B for an array ",
        ),
    ],
)
def test_no_line_takes_long(part: str) -> None:
    began = time.process_time()
    log_findings((part * (20_000 // len(part)) + "\n") * 5)
    assert time.process_time() - began < 2

"""Child processes that start with TensorFlow and Keras imported.

One process imports both, which takes seconds, and forks for each child before TensorFlow has made a
device or a thread. A child has memory, devices, environment, arguments and output of its own, as
one that imports for itself. Children that differ in what TensorFlow reads at its import are forked
from different processes. Test processes share these.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

READ_LATE = {
    "CUDA_VISIBLE_DEVICES",
    "PYTEST_CURRENT_TEST",
    "PYTEST_XDIST_WORKER",
    "PYTHONPATH",
    "TB_MEMPLUGIN_MEMORY_MAP",
    "TF_BFC_MEMORY_DUMP",
    "TF_CONFIG",
    "TF_CPU_ALLOCATOR_USE_BFC",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB",
}
"""Variables that TensorFlow reads when it makes its first device or later, or that mean nothing to
it."""
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""NumPy, and pyarrow where it is installed, make threads when they are imported."""


def bare_environment(**more: str) -> dict[str, str]:
    """This process's environment without what steers TensorFlow, Keras or this package, as a
    stranger's has it."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("TF_", "TB_", "KERAS_"))
    }
    return {**kept, **more}


def shell_environment(root: pathlib.Path) -> dict[str, str]:
    """A stranger's environment without a GPU, which finds this Python's commands and the package
    below `root`."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    return bare_environment(PATH=path, PYTHONPATH=str(root), CUDA_VISIBLE_DEVICES="")


Variables = frozenset[tuple[str, str]]

SERVER = """
import atexit, gc, json, os, signal, socket, sys
import keras, tensorflow
# After a child's own handlers: at its end Python would search all of TensorFlow for cycles.
atexit.register(gc.freeze)
# A fork of more threads could inherit a lock that none of them opens.
assert len(os.listdir("/proc/self/task")) == 1
listener, owner = socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def wait_for_order():
    # Returns in each new child, never in the process that forks.
    import select
    while True:
        ready, _, _ = select.select([listener, owner], [], [])
        if owner in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        # One process waits for the child and tells how it ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        os.close(owner)
        order = json.loads(connection.makefile().readline())
        child = os.fork()
        if child:
            connection.sendall(f"{child}\\n".encode())
            _, status = os.waitpid(child, 0)
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\\n".encode())
            os._exit(0)
        connection.close()
        return order

order = wait_for_order()
for descriptor, path in ((1, order["out"]), (2, order["err"])):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, descriptor)
    os.close(file)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
os.chdir(order["directory"])
os.environ.clear()
os.environ.update(order["environment"])
sys.argv[:] = order["arguments"]
sys.path[:0] = order["path"]
if order["file"]:
    __file__ = order["file"]
code = compile(order["code"], order["file"] or "<string>", "exec")
for name in (
    "atexit", "gc", "json", "os", "signal", "socket", "sys", "keras", "tensorflow", "listener",
    "owner", "wait_for_order", "order", "descriptor", "path", "file", "null", "name",
):
    globals().pop(name, None)
exec(globals().pop("code"))
"""


def run_python(
    arguments: list[str], *, environment: Mapping[str, str], timeout: float
) -> "subprocess.CompletedProcess[str]":
    """What `subprocess.run` gives for Python with these arguments: ``-c CODE …`` or ``FILE …``.

    Raises:
        subprocess.TimeoutExpired: The child ran longer than `timeout` seconds, and was killed.
    """
    read_early = frozenset(
        (key, value) for key, value in environment.items() if key not in READ_LATE
    )
    command = [sys.executable, *arguments]
    with contextlib.ExitStack() as stack:
        out, err = (
            stack.enter_context(tempfile.NamedTemporaryFile("r", errors="replace"))
            for _ in range(2)
        )
        order = {
            "out": out.name,
            "err": err.name,
            "environment": dict(environment),
            "directory": os.getcwd(),
            **_program(arguments),
        }
        order["path"] += [
            place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place
        ]
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        while connection.connect_ex(_address(read_early)):
            time.sleep(0.01)  # another process or thread has just taken the address
        connection.sendall(json.dumps(order).encode() + b"\n")
        answers = connection.makefile()
        child = int(answers.readline())
        connection.settimeout(timeout)
        try:
            code = int(answers.readline())
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout, out.read(), err.read()) from None
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def _program(arguments: list[str]) -> dict[str, object]:
    if arguments[0] == "-c":
        return {
            "code": arguments[1],
            "file": None,
            "arguments": ["-c", *arguments[2:]],
            "path": [""],
        }
    path = os.path.abspath(arguments[0])
    with open(path, encoding="utf-8") as file:
        code = file.read()
    return {
        "code": code,
        "file": path,
        "arguments": [path, *arguments[1:]],
        "path": [os.path.dirname(path)],
    }


def _address(environment: Variables) -> bytes:
    """The address at which a process with this environment takes orders until the test run ends,
    started if need be."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    name = hashlib.sha256(repr(sorted(environment)).encode()).hexdigest()
    address = f"\0{owner} {name}".encode()
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:  # another test process has it: it answers once it has imported
            return address
        listener.listen()
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(listener.fileno()), str(owner)],
            env={**dict(environment), **WITHOUT_THREADS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    return address

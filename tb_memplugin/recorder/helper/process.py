"""`Helper`: runs a `StepAnalysis` in a process of its own, so that the training's process only
hands over what it saw.

The process is started without a fork of the training, imports no TensorFlow, is niced, is the first
one that Linux ends for want of memory, and ends when the training's end of the connection is
closed. It is no child of the training: a program that waits for its own children does not see it.
If it cannot be started, the same analysis runs in the training's process, on the thread that
asks."""

import contextlib
import dataclasses
import functools
import importlib.util
import io
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from tb_memplugin.recorder.base import Faults, abandon_in_child, background
from tb_memplugin.recorder.helper.step_analysis import StepAnalysis
from tb_memplugin.schema import GraphFacts

NICENESS = 10
START_SECONDS = 60.0  # longest time until the process answers first; it imports NumPy
ANSWER_SECONDS = 300.0  # longest time for one answer; a step of a million events takes about 60 s
LOOK_SECONDS = 5.0  # interval at which the process looks whether the training's still exists
KEPT_GRAPHS = 3  # graphs of as many facts that the process knows, the last ones
OPS_AT_ONCE = 500  # ops that are pickled without giving up Python's lock, in about 2 ms

_P = ParamSpec("_P")
_R = TypeVar("_R")
Graphs: TypeAlias = tuple[GraphFacts, ...]
_PACKAGES = ("tb_memplugin", "numpy", "google.protobuf", "tensorboard")
# It forks before anything else is imported: the one that was started ends at once, the other one is
# nobody's child.
_START = (
    "import os, sys\n"
    "os.fork() and os._exit(0)\n"
    "sys.path += sys.argv[3:]\n"
    "from tb_memplugin.recorder.helper.process import main\n"
    "main()"
)


class HelperError(Exception):
    """The helper process ended, or did not answer in time."""


def _asked(
    method: Callable[Concatenate[StepAnalysis, _P], _R],
) -> "Callable[Concatenate[Helper, _P], _R]":
    """The method, answered by the process."""

    @functools.wraps(method)
    def ask(self: "Helper", /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        answer: _R = self._ask(method.__name__, *arguments, **named)
        return answer

    return ask


class Helper:
    """A `StepAnalysis`, with its methods, in a process that is started when it is needed. Any
    thread may call; calls wait for each other. What the analysis reports goes to `faults`; a call
    raises what the analysis raised. After `HelperError`, the next call starts a new process, which
    knows nothing of earlier steps."""

    def __init__(
        self,
        capacities: Mapping[str, int | None],
        handle_bytes: Mapping[str, int | None],
        faults: Faults,
    ) -> None:
        self._settings = dict(capacities), dict(handle_bytes)
        self._faults = faults
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._local: StepAnalysis | None = None
        self._prepared: _Prepared = (), []
        self.cost_seconds = 0.0
        """Processor time that analyses took so far."""
        abandon_in_child(self)

    first_batches = _asked(StepAnalysis.first_batches)
    records = _asked(StepAnalysis.records)
    failed_step = _asked(StepAnalysis.failed_step)
    last_facts = _asked(StepAnalysis.last_facts)
    exact_bytes = _asked(StepAnalysis.exact_bytes)
    needed_bytes = _asked(StepAnalysis.needed_bytes)
    post_mortem = _asked(StepAnalysis.post_mortem)

    def start(self) -> None:
        """Start the process now, so that the first step does not wait for its imports."""
        self.last_facts("")

    def prepare(self, graphs: Graphs) -> None:
        """Pickle graphs for a later call. What pickling leaves may start a collection of Python's
        garbage, which runs the program's destructors: better on this thread, the program's, than on
        the one that asks."""
        process = self._process
        known = self._prepared[0] is graphs or (process is not None and process.knows(graphs))
        if not known and self._local is None:
            self._prepared = graphs, _pickled(graphs)

    def close(self) -> None:
        """End the process, without waiting for it; a later call starts a new one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.abandon()

    def _abandon(self) -> None:
        """Close the connection in a forked child: it would keep the process alive after the
        training."""
        self._lock = threading.Lock()
        self._end()

    def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            if self._process is None and self._local is None:
                try:
                    self._process = _Process(self._settings)
                except Exception as error:
                    self._local = StepAnalysis(*self._settings, self._faults)
                    self._prepared = (), []
                    self._faults.warn(
                        "steps are analyzed in the training's process: no other one could be "
                        f"started ({error})"
                    )
            if self._process is None:
                began = time.thread_time()
                try:
                    return getattr(self._local, method)(*arguments, **named)
                finally:
                    self.cost_seconds += time.thread_time() - began
            try:
                answer = self._process.ask((method, (arguments, named)), self._prepared)
                if self._process.knows(self._prepared[0]):
                    self._prepared = (), []
            except (EOFError, OSError, HelperError) as error:
                self._end()
                ended = not isinstance(error, HelperError)
                raise HelperError("the helper process ended" if ended else str(error)) from None
        self.cost_seconds += answer.seconds
        for sentence in answer.reported:
            self._faults.warn(sentence)
        if isinstance(answer.result, _Raised):
            raise answer.result.error from HelperError(answer.result.text)
        return answer.result


class _Raised:
    """What a call raised, and its traceback as text."""

    def __init__(self, error: Exception) -> None:
        self.error, self.text = error, "".join(traceback.format_exception(error))


class _Answer(NamedTuple):
    """The result of a call, the sentences that it reported, and its processor time."""

    result: Any
    reported: Sequence[str]
    seconds: float


class _Connection(Connection):
    def __del__(self) -> None:
        """Do not close: Python also finalizes the parts of a dropped recording, whose own finalizer
        revives it. Its end would close the descriptor a second time, which may be one of the
        program's by then."""


class _Process:
    """The training's end of the connection."""

    def __init__(self, settings: Any) -> None:
        self._connection, theirs = (_Connection(end.detach()) for end in socket.socketpair())
        self._sent: list[Graphs] = []  # the last ones
        self._graphs = 0  # how many were sent
        self._pid = 0
        try:
            _start(theirs.fileno())
            theirs.close()
            self._connection.send(settings)
            self._pid = self._received(START_SECONDS)
        except BaseException:
            theirs.close()
            self.abandon()
            raise
        background.add_clock(self, functools.partial(_processor_seconds, self._pid))

    def ask(self, call: Any, prepared: "_Prepared") -> _Answer:
        """The answer to a call, which is pickled with the numbers of graphs: these are the largest
        part of facts and seldom change."""
        pickled = io.BytesIO()
        _Pickler(pickled, lambda graphs: self._number_of(graphs, prepared)).dump(call)
        self._connection.send_bytes(pickled.getvalue())
        answer: _Answer = self._received(ANSWER_SECONDS)
        return answer

    def _received(self, seconds: float) -> Any:
        if self._connection.poll(seconds):
            return self._connection.recv()
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        raise HelperError(f"the helper process did not answer within {seconds:.0f} s")

    def knows(self, graphs: Graphs) -> bool:
        return any(sent is graphs for sent in self._sent)

    def _number_of(self, graphs: Graphs, prepared: "_Prepared") -> int:
        if not self.knows(graphs):
            for part in prepared[1] if prepared[0] is graphs else _pickled(graphs):
                self._connection.send_bytes(part)
            self._sent = [*self._sent[1 - KEPT_GRAPHS :], graphs]
            self._graphs += 1
        place = next(at for at, sent in enumerate(self._sent) if sent is graphs)
        return self._graphs - len(self._sent) + place

    def abandon(self) -> None:
        background.remove_clock(self)
        self._connection.close()


_Prepared: TypeAlias = tuple[Graphs, list[bytes]]
"""Graphs, and the messages that tell the process of them."""


def _pickled(graphs: Graphs) -> list[bytes]:
    messages: list[tuple[None, Any]] = []
    for graph in graphs:
        ops = list(graph.ops.items())
        messages += [(None, ops[at : at + OPS_AT_ONCE]) for at in range(0, len(ops), OPS_AT_ONCE)]
        messages.append((None, dataclasses.replace(graph, ops={})))
    return [pickle.dumps(message) for message in [*messages, (None, None)]]


class _Pickler(pickle.Pickler):
    """Writes the numbers of graphs in their place."""

    def __init__(self, file: io.BytesIO, number_of: Callable[[Graphs], int]) -> None:
        super().__init__(file)
        self._number_of = number_of

    def persistent_id(self, value: Any) -> int | None:
        is_graphs = type(value) is tuple and value and type(value[0]) is GraphFacts
        return self._number_of(value) if is_graphs else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, graphs: Mapping[int, Graphs]) -> None:
        super().__init__(io.BytesIO(data))
        self._graphs = graphs

    def persistent_load(self, number: Any) -> Graphs:
        return self._graphs[number]


def _start(descriptor: int) -> None:
    """Start the process; `RuntimeError` without a Python that can."""
    is_python = os.path.basename(sys.executable or "").startswith("python")
    if not is_python or getattr(sys, "frozen", False):
        raise RuntimeError(f"sys.executable is no Python: {sys.executable!r}")
    found = (importlib.util.find_spec(name) for name in _PACKAGES)
    places = [place for spec in found if spec for place in spec.submodule_search_locations or ()]
    # "numpy" lies in its directory's parent, "google.protobuf" in that one's parent.
    roots = [
        os.path.abspath(os.path.join(place, *[os.pardir] * (1 + name.count("."))))
        for name, place in zip(_PACKAGES, places, strict=True)
    ]
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _START,
        str(descriptor),
        str(os.getpid()),
        *dict.fromkeys(roots),
    ]
    launcher = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        cwd="/",
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    if launcher.wait(START_SECONDS):
        raise RuntimeError(f"{sys.executable} ended with status {launcher.returncode}")


def _processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run as the helper process, with the connection's descriptor and the training's process id as
    arguments."""
    os.setpgid(0, 0)  # Ctrl+C is meant for the training
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    logging.getLogger("tb_memplugin").disabled = True
    connection, training = Connection(int(sys.argv[1])), int(sys.argv[2])
    capacities, handle_bytes = connection.recv()
    connection.send(os.getpid())
    reported: list[str] = []
    analysis = StepAnalysis(capacities, handle_bytes, Faults(reported.append))
    graphs: dict[int, Graphs] = {}  # the last ones by number
    count = 0
    parts: list[GraphFacts] = []
    ops: list[Any] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            while not connection.poll(LOOK_SECONDS):
                # raises if it is gone, while a process that it forked keeps the connection open
                os.kill(training, 0)
            began = time.process_time()
            method, content = _Unpickler(connection.recv_bytes(), graphs).load()
            if method is not None:
                arguments, named = content
                try:
                    result = getattr(analysis, method)(*arguments, **named)
                except Exception as error:
                    result = _Raised(error)
                connection.send(_Answer(result, tuple(reported), time.process_time() - began))
                reported.clear()
            elif content is None:
                graphs[count], parts = tuple(parts), []
                graphs.pop(count - KEPT_GRAPHS, None)
                count += 1
            elif isinstance(content, GraphFacts):
                parts.append(dataclasses.replace(content, ops=dict(ops)))
                ops = []
            else:
                ops += content

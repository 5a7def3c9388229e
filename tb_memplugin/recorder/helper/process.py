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
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from tb_memplugin.attribution import OomEvent
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import Faults, abandon_in_child, background
from tb_memplugin.recorder.helper.recent_steps import OwnedMap
from tb_memplugin.recorder.helper.step_analysis import Dumps, StepAnalysis, TracedStep
from tb_memplugin.schema import BatchFacts, GraphFacts, Layer, MemoryMap, Oom, TraceFacts
from tb_memplugin.storage.write import PackedRecord

NICENESS = 10
START_SECONDS = 60.0  # longest time until the process answers first; it imports NumPy
ANSWER_SECONDS = 300.0  # longest time for one answer; a step of a million events takes about 60 s
LOOK_SECONDS = 5.0  # interval at which the process looks whether the training's still exists
KEPT_GRAPHS = 3  # graphs of as many facts that the process knows, the last ones
OPS_AT_ONCE = 500  # ops that are pickled without giving up Python's lock, in about 2 ms

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
        self._prepared: _Prepared = (None, [])
        self.cost_seconds = 0.0
        """Processor time that analyses took so far."""
        abandon_in_child(self)

    def start(self) -> None:
        """Start the process now, so that the first step does not wait for its imports."""
        self._ask("exact_bytes", Request(), "")

    def prepare(self, graphs: tuple[GraphFacts, ...]) -> None:
        """Pickle graphs for a later call. What pickling leaves may start a collection of Python's
        garbage, which runs the program's destructors: better on this thread, the program's, than on
        the one that asks."""
        process = self._process
        known = self._prepared[0] is graphs or (process is not None and process.knows(graphs))
        if not known and self._local is None:
            self._prepared = graphs, _pickled(graphs)

    def first_batches(self, before: Dumps, after: Dumps) -> None:
        self._ask("first_batches", before, after)

    def records(self, traced: TracedStep) -> list[PackedRecord]:
        records: list[PackedRecord] = self._ask("records", traced)
        return records

    def failed_step(
        self,
        traced: TracedStep,
        device: str,
        memory_map: MemoryMap | None,
        request: Request,
        now: TraceFacts,
        given: BatchFacts | None,
    ) -> OwnedMap | None:
        owned: OwnedMap | None = self._ask(
            "failed_step", traced, device, memory_map, request, now, given
        )
        return owned

    def last_facts(self, device: str) -> TraceFacts:
        facts: TraceFacts = self._ask("last_facts", device)
        return facts

    def exact_bytes(self, request: Request, device: str) -> tuple[int | None, int]:
        exact: tuple[int | None, int] = self._ask("exact_bytes", request, device)
        return exact

    def needed_bytes(self, event: OomEvent, batch_size: int | None) -> int | None:
        needed: int | None = self._ask("needed_bytes", event, batch_size)
        return needed

    def post_mortem(
        self,
        event: OomEvent,
        memory_map: MemoryMap | None,
        facts: TraceFacts | None,
        layers: Sequence[Layer],
        traced_batch: int | None,
        given_batch: int | None,
    ) -> Oom:
        oom: Oom = self._ask(
            "post_mortem", event, memory_map, facts, layers, traced_batch, given_batch
        )
        return oom

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
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            process.abandon()

    def _ask(self, method: str, *arguments: Any) -> Any:
        with self._lock:
            if self._process is None and self._local is None:
                try:
                    self._process = _Process(self._settings)
                except Exception as error:
                    self._local = StepAnalysis(*self._settings, self._faults)
                    self._prepared = None, []
                    self._faults.warn(
                        "steps are analyzed in the training's process: no other one could be "
                        f"started ({error})"
                    )
            if self._process is None:
                assert self._local is not None
                began = time.thread_time()
                try:
                    return getattr(self._local, method)(*arguments)
                finally:
                    self.cost_seconds += time.thread_time() - began
            try:
                answer = self._process.ask(method, arguments, self._prepared)
                if self._process.knows(self._prepared[0]):
                    self._prepared = None, []
            except (EOFError, OSError, HelperError) as error:
                reason = (
                    str(error) if isinstance(error, HelperError) else ("the helper process ended")
                )
                self._end()
                raise HelperError(reason) from None
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


class _Answer:
    """The result of a call, the sentences that it reported, and its processor time."""

    def __init__(self, result: Any, reported: Sequence[str], seconds: float) -> None:
        self.result, self.reported, self.seconds = result, tuple(reported), seconds


class _Connection(Connection):
    def __del__(self) -> None:
        """Do not close: Python also finalizes the parts of a dropped recording, whose own finalizer
        revives it. Its end would close the descriptor a second time, which may be one of the
        program's by then."""


class _Process:
    """The training's end of the connection."""

    def __init__(self, settings: Any) -> None:
        self._connection, theirs = (_Connection(end.detach()) for end in socket.socketpair())
        self._sent: list[tuple[GraphFacts, ...]] = []  # the last ones
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

    def ask(
        self, method: str, arguments: Sequence[Any], prepared: "_Prepared" = (None, [])
    ) -> _Answer:
        light = [self._light(one, prepared) for one in arguments]
        self._connection.send((method, light))
        answer: _Answer = self._received(ANSWER_SECONDS)
        return answer

    def _received(self, seconds: float) -> Any:
        if self._connection.poll(seconds):
            return self._connection.recv()
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        raise HelperError(f"the helper process did not answer within {seconds:.0f} s")

    def knows(self, graphs: tuple[GraphFacts, ...] | None) -> bool:
        return any(sent is graphs for sent in self._sent)

    def _light(self, value: Any, prepared: "_Prepared") -> Any:
        """The value with the numbers of graphs, which are the largest part of facts and seldom
        change."""
        if isinstance(value, TraceFacts):
            return _Light(
                self._number_of(value.graphs, prepared), dataclasses.replace(value, graphs=())
            )
        if isinstance(value, TracedStep):
            facts: Any = {device: self._light(one, prepared) for device, one in value.facts.items()}
            return dataclasses.replace(value, facts=facts)
        return value

    def _number_of(self, graphs: tuple[GraphFacts, ...], prepared: "_Prepared") -> int:
        for place, sent in enumerate(self._sent):
            if sent is graphs:
                return self._graphs - len(self._sent) + place
        for part in prepared[1] if prepared[0] is graphs else _pickled(graphs):
            self._connection.send_bytes(part)
        self._sent = [*self._sent[1 - KEPT_GRAPHS :], graphs]
        self._graphs += 1
        return self._graphs - 1

    def abandon(self) -> None:
        background.remove_clock(self)
        self._connection.close()


_Prepared: TypeAlias = tuple[tuple[GraphFacts, ...] | None, list[bytes]]
"""Graphs, None without any, and the messages that tell the process of them."""


def _pickled(graphs: tuple[GraphFacts, ...]) -> list[bytes]:
    messages: list[tuple[None, Any]] = []
    for graph in graphs:
        ops = list(graph.ops.items())
        messages += [(None, ops[at : at + OPS_AT_ONCE]) for at in range(0, len(ops), OPS_AT_ONCE)]
        messages.append((None, dataclasses.replace(graph, ops={})))
    return [pickle.dumps(message) for message in [*messages, (None, None)]]


@dataclasses.dataclass(frozen=True)
class _Light:
    """Facts, and the number of their graphs."""

    number: int
    facts: TraceFacts


def _start(descriptor: int) -> None:
    """Start the process; `RuntimeError` without a Python that can."""
    if not os.path.basename(sys.executable or "").startswith("python") or getattr(
        sys, "frozen", False
    ):
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
    settings = connection.recv()
    connection.send(os.getpid())
    reported: list[str] = []
    capacities, handle_bytes = settings
    analysis = StepAnalysis(capacities, handle_bytes, Faults(reported.append))
    graphs: list[tuple[GraphFacts, ...]] = []
    ended = 0  # graphs that are not kept any more
    with contextlib.suppress(EOFError, OSError):
        while True:
            parts: list[Any] = []
            ops: list[Any] = []
            method, arguments = _next(connection, training)
            while method is None:
                if arguments is None:
                    graphs.append(tuple(parts))
                    ended += len(graphs[:-KEPT_GRAPHS])
                    graphs, parts = graphs[-KEPT_GRAPHS:], []
                elif isinstance(arguments, GraphFacts):
                    parts.append(dataclasses.replace(arguments, ops=dict(ops)))
                    ops = []
                else:
                    ops += arguments
                method, arguments = _next(connection, training)
            began = time.process_time()
            try:
                whole = [_whole(one, graphs, ended) for one in arguments]
                result = getattr(analysis, method)(*whole)
            except Exception as error:
                result = _Raised(error)
            connection.send(_Answer(result, reported, time.process_time() - began))
            reported.clear()


def _next(connection: Any, training: int) -> tuple[str | None, Any]:
    while not connection.poll(LOOK_SECONDS):
        # raises if it is gone, while a process that it forked keeps the connection open
        os.kill(training, 0)
    received: tuple[str | None, Any] = connection.recv()
    return received


def _whole(value: Any, graphs: Sequence[tuple[GraphFacts, ...]], ended: int) -> Any:
    if isinstance(value, _Light):
        return dataclasses.replace(value.facts, graphs=graphs[value.number - ended])
    if isinstance(value, TracedStep):
        facts = {device: _whole(one, graphs, ended) for device, one in value.facts.items()}
        return dataclasses.replace(value, facts=facts)
    return value

"""The helper process: what it answers, what it leaves alone, and what its faults cost."""

import dataclasses
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from trace_cases import FACTS

from tb_memplugin.attribution import OomEvent
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.helper import Helper, HelperError, StepAnalysis, TracedStep, process
from tb_memplugin.schema import GraphFacts, OpFact

CAPACITIES = {"GPU:0": 1 << 30}
EVENT = OomEvent("1", "failed", "GPU:0", 5.0, 7, "train", during="step")


def graphs(number: int) -> tuple[GraphFacts, ...]:
    ops = {f"net/layer_{at}/MatMul": OpFact(f"net/layer_{at}", "forward") for at in range(number)}
    return GraphFacts("step", ops, {}, root=True), GraphFacts("body", {}, {}, root=False)


@pytest.fixture
def helper() -> Iterator[Any]:
    reported: list[str] = []
    made = Helper(CAPACITIES, {}, Faults(reported.append))
    made.reported = reported  # type: ignore[attr-defined]
    yield made
    made.close()


def exists(pid: int) -> bool:
    """Whether a process runs; one that ended may wait for its parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not exists(pid)


def test_it_answers_as_the_analysis_does_here(helper: Any) -> None:
    here = StepAnalysis(CAPACITIES, {}, Faults())
    assert helper.post_mortem(EVENT, None, FACTS, (), 4, 4) == here.post_mortem(
        EVENT, None, FACTS, (), 4, 4
    )
    request = Request(requested_bytes=1000, uncertain_bytes=10)
    assert helper.exact_bytes(request, "GPU:0") == here.exact_bytes(request, "GPU:0") == (1000, 10)
    assert helper.cost_seconds > 0
    # AND what it raises is raised here, after which it goes on
    broken = TracedStep(1, "train", 1.0, "no such profile", {"GPU:0": FACTS}, {}, {}, False)
    with pytest.raises(Exception) as error:
        here.records(broken)
    with pytest.raises(type(error.value)):
        helper.records(broken)
    assert helper.needed_bytes(EVENT, 4) is None and helper.reported == []


class Loaded(pickle.Unpickler):
    def persistent_load(self, number: Any) -> Any:
        return number


def test_graphs_are_sent_once_and_the_last_ones_are_known_by_number(
    helper: Any, monkeypatch
) -> None:
    sent: list[Any] = []
    helper.exact_bytes(Request(), "GPU:0")
    connection = helper._process._connection
    monkeypatch.setattr(
        helper._process,
        "_connection",
        type(
            "Noted",
            (),
            {
                "send_bytes": lambda self, data: (
                    sent.append(Loaded(io.BytesIO(data)).load()),
                    connection.send_bytes(data),
                ),
                "poll": lambda self, seconds: connection.poll(seconds),
                "recv": lambda self: connection.recv(),
                "close": lambda self: connection.close(),
            },
        )(),
    )
    several = [graphs(number) for number in (1, 1200, 3, 4)]
    for at, one in enumerate((*several, several[-1], several[0])):
        if at % 2:  # those that were pickled before are the same
            helper.prepare(one)
        facts = dataclasses.replace(FACTS, graphs=one)
        here = StepAnalysis(CAPACITIES, {}, Faults()).post_mortem(EVENT, None, facts, (), 4, 4)
        assert helper.post_mortem(EVENT, None, facts, (), 4, 4) == here
    # none at all
    assert helper.post_mortem(EVENT, None, dataclasses.replace(FACTS, graphs=()), (), 4, 4)
    ends = [value for value in sent if value == (None, None)]
    assert len(ends) == 5  # once more for the first one, which is not known any more
    assert (
        max(len(part) for kind, part in sent if kind is None and isinstance(part, list))
        == process.OPS_AT_ONCE
    )


def test_it_is_nobodys_child_runs_behind_the_training_and_has_no_tensorflow(helper: Any) -> None:
    helper.exact_bytes(Request(), "GPU:0")
    pid = helper._process._pid
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert (
        os.getpriority(os.PRIO_PROCESS, pid)
        == os.getpriority(os.PRIO_PROCESS, 0) + process.NICENESS
    )
    assert os.getpgid(pid) == pid  # Ctrl+C does not reach it
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        assert "tensorflow" not in file.read()
    helper.close()
    assert gone(pid)


def test_a_process_that_ends_or_hangs_costs_one_answer(
    helper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper.exact_bytes(Request(), "GPU:0")
    os.kill(helper._process._pid, signal.SIGKILL)
    with pytest.raises(HelperError, match="the helper process ended"):
        helper.exact_bytes(Request(), "GPU:0")
    # AND the next one is of a new process
    assert helper.exact_bytes(Request(requested_bytes=5), "GPU:0") == (5, 0)
    pid = helper._process._pid
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)
    with pytest.raises(HelperError, match=r"did not answer within 0 s"):
        helper.exact_bytes(Request(), "GPU:0")
    assert gone(pid)


@pytest.mark.parametrize("executable", ["", "/usr/bin/env", "/no/such/python3"])
def test_without_a_process_the_analysis_runs_here_and_a_note_says_so(
    helper, monkeypatch, executable
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert helper.exact_bytes(Request(requested_bytes=5), "GPU:0") == (5, 0)
    (note,) = helper.reported
    assert note.startswith(
        "steps are analyzed in the training's process: no other one could be started ("
    )
    assert helper._process is None


def test_it_ends_with_a_training_that_is_killed() -> None:
    code = (
        "from tb_memplugin.recorder.helper import Helper\n"
        "from tb_memplugin.recorder.base import Faults\n"
        "from tb_memplugin.importers import Request\n"
        "import os, signal\n"
        "helper = Helper({'GPU:0': None}, {}, Faults())\n"
        "helper.exact_bytes(Request(), 'GPU:0')\n"
        "print(helper._process._pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL and gone(int(done.stdout))


def test_one_that_a_finalizer_revives_answers_and_closes_its_descriptor_once() -> None:
    revived: list[Any] = []

    class Owner:
        def __init__(self) -> None:
            self.helper, self.itself = Helper(CAPACITIES, {}, Faults()), self
            self.helper.start()

        def __del__(self) -> None:
            revived.append(self.helper)

    Owner()
    gc.collect()
    (helper,) = revived
    pid = helper._process._pid
    assert helper.exact_bytes(Request(requested_bytes=1000), "GPU:0") == (1000, 0)
    assert helper._process._pid == pid
    helper.close()
    assert gone(pid)

"""What the background thread does with a traced step."""

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.base import Faults, checked_settings
from tb_memplugin.recorder.helper import TRACING, TracedStep
from tb_memplugin.recorder.loop.sender import Sender
from tb_memplugin.schema import BatchFacts, TraceFacts
from tb_memplugin.storage.write import RunWriter

RECORD = SimpleNamespace(kept=object())


class Parts:
    """A sender and what it works on; all of these are fakes."""

    def __init__(self, directory: pathlib.Path, raises: bool = False) -> None:
        self.raises = raises
        self.written: list[tuple[Any, ...]] = []
        self.released: list[TracedStep] = []
        self.costs: list[float] = []
        self.faults = Faults()
        self.layers = SimpleNamespace(batch_size=None, completed_table=lambda: None)
        self.helper = SimpleNamespace(records=self.records, cost_seconds=1.0)
        windows = SimpleNamespace(
            helper=self.helper,
            schedule=SimpleNamespace(add_cost=self.costs.append),
            release=self.released.append,
        )
        file = SimpleNamespace(do=lambda *call: self.written.append(call))
        self.settings = checked_settings(directory, 0.005, None, None, True, "")
        parts: Any = (SimpleNamespace(windows=windows), file, self.layers)
        self.sender = Sender(self.settings, *parts, self.faults, lambda: None)

    def records(self, traced: TracedStep) -> list[Any]:
        self.helper.cost_seconds += 0.25
        if self.raises:
            raise ValueError("an odd profile")
        return [RECORD]


def traced(directory: pathlib.Path) -> TracedStep:
    (directory / "profile").write_bytes(b"profile")
    facts = {"CPU:0": TraceFacts(batch=BatchFacts(32))}
    return TracedStep(7, "train", 5.0, str(directory / "profile"), facts, {}, {}, False)


@pytest.mark.parametrize("raises", [False, True])
def test_a_traced_step_is_written_and_its_profile_released_also_after_a_fault(
    tmp_path: pathlib.Path, raises: bool
) -> None:
    parts, step = Parts(tmp_path, raises), traced(tmp_path)
    parts.sender.analyze(step)
    # THEN readers were told while it was analyzed, and what that cost counts as overhead
    records = [] if raises else [(RunWriter.traced, RECORD)]
    marks = [(RunWriter.analyzing, 7), *records, (RunWriter.analyzing, None)]
    assert parts.written == marks
    assert parts.released == [step] and parts.costs == [0.25]
    assert parts.layers.batch_size == 32 and not parts.faults.stopped(TRACING)
    # AND the raw profile is in the run
    (kept,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert kept.read_bytes() == b"profile"
    # AND the next step is announced only while there is no breakdown
    parts.sender.analyze(step)
    assert len(parts.written) == len(marks) + (len(marks) if raises else 1)

"""The timelines of a step, and their bytes by category."""

import collections
import dataclasses
import pathlib

import pytest
from export_cases import FIXTURES, TIMELINE_STEPS, recorded_ledger
from reading_cases import make_timeline, write_small_run
from timeline_cases import category_totals

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.export.steps import category_bytes, step_timelines


@pytest.mark.parametrize("step", TIMELINE_STEPS)
def test_categories_sum_to_the_ledger_at_the_peak(step: int) -> None:
    _, (timeline,) = step_timelines(str(FIXTURES), "out_of_memory", step)
    totals = category_bytes(timeline)
    expected = category_totals(timeline)
    assert {name: values.tolist() for name, values in totals.items()} == {
        name: values.tolist() for name, values in expected.items()
    }
    by_category: collections.Counter[str] = collections.Counter()
    for (_, category), size in recorded_ledger(timeline).items():
        by_category[category] += size
    assert {name: int(values[timeline.peak]) for name, values in totals.items() if values[timeline.peak]} == by_category


def test_the_run_step_device_and_phase_select(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for device, phase in (("CPU:0", "train"), ("GPU:0", "train"), ("GPU:0", "validation")):
        writer.timeline(make_timeline(3, device=device, phase=phase))  # type: ignore[arg-type]
    lower = make_timeline(3, device="GPU:0")
    writer.timeline(dataclasses.replace(lower, in_use_bytes=lower.in_use_bytes - 1))
    writer.close()
    name, timelines = step_timelines(str(tmp_path), None, 3)
    # THEN accelerators come first, of two timelines that of the higher peak
    assert name == "run"
    assert [(one.device, one.phase) for one in timelines] == [("GPU:0", "train"), ("CPU:0", "train")]
    assert timelines[0].in_use_bytes == lower.in_use_bytes
    _, (validation,) = step_timelines(str(tmp_path), "run", 3, phase="validation")
    assert (validation.device, validation.phase) == ("GPU:0", "validation")
    _, (cpu,) = step_timelines(str(tmp_path), "run", 3, device="CPU:0")
    assert cpu.device == "CPU:0"


def test_what_does_not_exist_names_what_does(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "one", allocator=True)
    with pytest.raises(NotFoundError, match="no timeline of step 4; available steps: 3"):
        step_timelines(str(tmp_path), "one", 4)
    with pytest.raises(NotFoundError, match="of phase validation on CPU:0; available steps: none"):
        step_timelines(str(tmp_path), "one", 3, "CPU:0", "validation")
    with pytest.raises(NotFoundError, match="onee"):
        step_timelines(str(tmp_path), "onee", 3)
    write_small_run(tmp_path / "two")
    with pytest.raises(RequestError, match="one, two"):
        step_timelines(str(tmp_path), None, 3)

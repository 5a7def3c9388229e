"""`tb-memplugin doctor` on this machine, as it is and with something wrong."""

import pytest
from child import child_environment, run_child
from prepared_python import run_python


def doctor(**variables: str) -> tuple[int, dict[str, str]]:
    """Exit code, and what is said by the name of the check, with `ok` or `!!` in front."""
    done = run_python(
        ["-c", "import sys; from tb_memplugin.cli import main; sys.exit(main(['doctor']))"],
        environment=child_environment(variables),
        timeout=240,
    )
    lines = [line for line in done.stdout.splitlines() if line[:4] in ("ok  ", "!!  ")]
    assert lines == done.stdout.splitlines(), done.stderr
    return done.returncode, {
        line[4:].partition(":")[0]: line[:4] + line.partition(": ")[2] for line in lines
    }


def test_where_recording_works_every_line_is_ok() -> None:
    code, said = doctor()
    assert code == 0, said
    assert all(text.startswith("ok") for text in said.values())
    assert (
        said["recording"].endswith("addresses")
        and ("weights equal Keras's count") in said["recording"]
    )


def test_what_is_wrong_is_said_with_what_to_do() -> None:
    code, said = doctor(TF_CPU_ALLOCATOR_USE_BFC="0")
    assert code == 1
    assert said["allocator"].startswith("!!") and "TF_CPU_ALLOCATOR_USE_BFC=1" in said["allocator"]
    assert said["memory map"].startswith("!!") and said["TensorFlow"].startswith("ok")
    assert "recording" not in said


def test_a_training_goes_on_until_its_steps_are_traced_however_little_time_it_has() -> None:
    assert (
        run_child("from tb_memplugin.cli import doctor; answer(doctor._recording(0.0))")[0] is True
    )


@pytest.mark.long
def test_without_the_memory_map_the_reason_is_said_and_the_recording_still_checked() -> None:
    code, said = doctor(TB_MEMPLUGIN_MEMORY_MAP="0")
    assert code == 1 and "TB_MEMPLUGIN_MEMORY_MAP=0 is set" in said["memory map"]
    assert "recording" in said

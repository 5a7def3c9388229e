"""The marker `limit_device_memory`, in pytest runs of their own."""

import os
import pathlib
import subprocess
import sys

import pytest
from child import BFC

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


def run_tests(folder: pathlib.Path, code: str, *arguments: str, bfc: bool = True) -> tuple[int, str]:
    """Exit code and output of pytest on a file with `code`, with this plugin alone."""
    (folder / "test_it.py").write_text(code, encoding="utf-8")
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "300",  # pytest cuts the lines of its summary
        "PYTHONPATH": str(ROOT),
        **(BFC if bfc else {"TF_CPU_ALLOCATOR_USE_BFC": "0"}),
    }
    command = [sys.executable, "-m", "pytest", "-p", "tb_memplugin.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "-rA", *arguments, "test_it.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def outcome(output: str, test: str) -> str:
    """The line of `test` in pytest's summary."""
    return next(line for line in output.splitlines() if f"::{test}" in line and line.split()[0].isupper())


BOUNDED = f"""
import pytest, tensorflow as tf
kept = []

def allocate(mebibytes):
    return tf.ones(mebibytes * {MIB} // 4)

@pytest.mark.limit_device_memory("64 MiB")
def test_below(): allocate(32)

@pytest.mark.limit_device_memory("16 MiB")
def test_above(): allocate(32)

@pytest.mark.limit_device_memory({16 * MIB}, device="CPU:0")
def test_bytes_and_device(): allocate(32)

@pytest.mark.limit_device_memory("96 MiB")
def test_garbage():  # a new region of 64 MiB, in one chunk
    cycle = [allocate(40)]; cycle.append(cycle)

@pytest.mark.limit_device_memory("96 MiB")
def test_garbage_of_other_tests_does_not_count():
    cycle = [allocate(40)]; cycle.append(cycle)

@pytest.mark.limit_device_memory("16 MiB")
def test_resets_hide_no_peak():
    allocate(32)
    tf.config.experimental.reset_memory_stats("CPU:0")

@pytest.mark.limit_device_memory("16 MiB")
def test_own_failure():
    assert len(allocate(32).shape) == 7

@pytest.mark.xfail(strict=True)
@pytest.mark.limit_device_memory("16 MiB")
def test_expected_to_fail(): allocate(32)

class TestGroup:
    @pytest.mark.limit_device_memory("16 MiB")
    @pytest.mark.parametrize("size", [8, 32])
    def test_method(self, size): allocate(size)

class TestCase(tf.test.TestCase):
    @pytest.mark.limit_device_memory("16 MiB")
    def test_of_tensorflows_test_case(self): allocate(32)

def test_unmarked(): allocate(32)

@pytest.mark.limit_device_memory("16 MiB")
def test_a_recorder_hides_no_peak(tmp_path):
    import tb_memplugin
    with tb_memplugin.MemoryRecorder(tmp_path, overhead=0) as recorder:
        for step, size in enumerate((32, 1, 1)):
            with recorder.step(step): allocate(size)

def test_the_wrapped_call_is_restored():
    from tensorflow.python.eager.context import Context
    assert "tb_memplugin" not in Context.reset_memory_stats.__module__
"""


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> str:
    code, output = run_tests(tmp_path_factory.mktemp("bounded"), BOUNDED, "--strict-markers")
    assert code == 1, output
    return output


@pytest.mark.parametrize(
    "test",
    [
        "test_below",
        "test_garbage",
        "test_garbage_of_other_tests_does_not_count",
        "test_method[8]",
        "test_unmarked",
        "test_the_wrapped_call_is_restored",
    ],
)
def test_what_stays_within_the_limit_passes(bounded: str, test: str) -> None:
    assert outcome(bounded, test).startswith("PASSED"), bounded


@pytest.mark.parametrize(
    "test",
    [
        "test_above",
        "test_bytes_and_device",
        "test_resets_hide_no_peak",
        "test_method[32]",
        "test_of_tensorflows_test_case",
        "test_a_recorder_hides_no_peak",
    ],
)
def test_a_peak_above_the_limit_fails_with_its_size(bounded: str, test: str) -> None:
    assert outcome(bounded, test).startswith("FAILED"), bounded
    assert "limit_device_memory: CPU:0: peak 32" in outcome(bounded, test)


def test_a_failure_says_what_was_in_use(bounded: str) -> None:
    assert "limit_device_memory: CPU:0: peak 32.0 MiB, limit 16.0 MiB; in use: " in bounded


def test_a_tests_own_failure_and_xfail_stay_what_they_are(bounded: str) -> None:
    assert "assert 1 == 7" in bounded and "limit_device_memory" not in outcome(bounded, "test_own_failure")
    assert outcome(bounded, "test_expected_to_fail").startswith("XFAIL")


@pytest.mark.long
def test_an_allocator_without_statistics_fails_the_test(tmp_path: pathlib.Path) -> None:
    code, output = run_tests(
        tmp_path,
        "import pytest\n@pytest.mark.limit_device_memory('1GiB')\ndef test_it(): open('ran', 'w')\n",
        bfc=False,
    )
    assert code == 1 and "limit_device_memory cannot measure: Not recording CPU:0" in output
    assert "TF_CPU_ALLOCATOR_USE_BFC=1" in output and not (tmp_path / "ran").exists()


@pytest.mark.long
def test_wrong_arguments_fail_the_test(tmp_path: pathlib.Path) -> None:
    wrong = {
        "'lots'": "the limit is a size such as '512 MiB' or a number of bytes. Received: 'lots'",
        "0": "Received: 0",
        "True": "Received: True",
        "'1GiB', device='GPU:7'": "Not recording GPU:7: this process has only CPU:0.",
        "": "limit_device_memory() missing 1 required positional argument: 'limit'",
    }
    tests = (
        f"@pytest.mark.limit_device_memory({arguments})\ndef test_{at}(): pass\n" for at, arguments in enumerate(wrong)
    )
    code, output = run_tests(tmp_path, "import pytest\n" + "".join(tests))
    assert code == 1
    for at, sentence in enumerate(wrong.values()):
        line = outcome(output, f"test_{at}")
        assert line.startswith("FAILED") and "limit_device_memory cannot measure: " in line and sentence in line


def test_unmarked_tests_import_no_tensorflow(tmp_path: pathlib.Path) -> None:
    code, output = run_tests(
        tmp_path,
        "import sys\ndef test_it():\n"
        "    heavy = ('tensorflow', 'keras', 'numpy', 'tensorboard')\n"
        "    assert not [name for name in heavy if name in sys.modules]\n",
    )
    assert code == 0, output


def test_the_marker_is_described(tmp_path: pathlib.Path) -> None:
    code, output = run_tests(tmp_path, "", "--markers")
    assert code == 0 and "@pytest.mark.limit_device_memory(limit, device=None): fail the test if the peak" in output


def test_with_the_switch_marked_tests_run_unbounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    code, output = run_tests(
        tmp_path,
        "import pytest, sys\n@pytest.mark.limit_device_memory('wrong')\ndef test_it():\n"
        "    assert not [name for name in sys.modules if name.startswith(('tensorflow', 'tb_memplugin.recorder'))]\n",
        "--strict-markers",
    )
    assert code == 0, output

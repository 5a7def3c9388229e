"""`tb-memplugin check`: exit codes, lines, JSON, and which runs are compared."""

import json
import pathlib
import subprocess
import sys

import pytest
from reading_cases import MIB, event_files, make_samples, write_small_run

from tb_memplugin.cli import main
from tb_memplugin.events.run_writer import RunWriter


def write_peak(directory: pathlib.Path, peak: int, device: str = "GPU:0") -> None:
    writer = RunWriter(directory)
    writer.samples(make_samples([0, 1], [peak // 2, peak], device=device))
    writer.close()


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    for run, peak in (("main/small", 100), ("main/large", 1000), ("pr/small", 100), ("pr/large", 1100)):
        write_peak(tmp_path / run, peak * MIB)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    code = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    assert code != 2 or captured.out or captured.err.count("\n") == 1
    return code, (captured.out or captured.err).splitlines()


def test_within_and_violated(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, logdir / "pr", "--max-peak", "1.2GiB") == (
        0,
        [
            "within budget: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1.2 GiB",
            "within budget: small, GPU:0: peak 100 MiB at step 1 (train), allowed 1.2 GiB",
            "2 within budget",
        ],
    )
    assert check(capsys, logdir / "pr", "--max-peak", "1000 MiB") == (
        1,
        [
            "within budget: small, GPU:0: peak 100 MiB at step 1 (train), allowed 1000 MiB",
            "violated: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1000 MiB",
            "1 within budget, 1 violated",
        ],
    )


def test_runs_are_compared_with_the_baselines_run_of_their_name(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare = [logdir / "pr", "--baseline", logdir / "main", "--max-regression"]
    assert check(capsys, *compare, "10%")[0] == 0
    code, lines = check(capsys, *compare, "5%")
    assert code == 1 and lines[1] == (
        "violated: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1.0 GiB (baseline 1000 MiB + 5%)"
    )
    assert check(capsys, *compare, "100MiB")[0] == 0 and check(capsys, *compare, "99MiB")[0] == 1


def test_a_single_run_is_the_baseline_of_every_run(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, logdir / "pr", "--baseline", logdir / "main" / "large", "--max-regression", "5%")
    assert code == 1 and [line.partition(":")[0] for line in lines[:2]] == ["within budget", "violated"]
    # AND a run's own directory can be checked, under its path
    run = logdir / "pr" / "large"
    code, lines = check(capsys, run, "--baseline", logdir / "main" / "large", "--max-regression", "10%")
    assert code == 0 and lines[0].startswith(f"within budget: {run}, GPU:0: peak")


def test_the_baseline_inside_the_log_directory_is_not_checked(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [logdir, "--baseline", logdir / "main" / "small", "--max-regression", "0%", "--format", "json"]
    code, lines = check(capsys, *arguments)
    names = [one["run"] for one in json.loads(lines[0])["checks"]]
    assert code == 1 and names == ["main/large", "pr/large", "pr/small"]
    code, lines = check(capsys, logdir / "main", "--baseline", logdir / "main", "--max-regression", "0%")
    assert code == 2 and "belongs to the baseline" in lines[0]


def test_a_new_run_is_said_and_passes_only_if_allowed(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_peak(logdir / "pr" / "huge", 5000 * MIB)
    arguments = [logdir / "pr", "--baseline", logdir / "main", "--max-regression", "10%"]
    code, lines = check(capsys, *arguments)
    assert code == 2 and lines[2] == "not in baseline: huge, GPU:0: the baseline has no such run"
    assert check(capsys, *arguments, "--allow-new") == (0, lines)


def test_a_run_that_is_only_in_the_baseline_is_said(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_peak(logdir / "main" / "gone", MIB)
    arguments = [logdir / "pr", "--baseline", logdir / "main", "--max-regression", "10%"]
    code, lines = check(capsys, *arguments, "--allow-new")
    assert code == 2 and lines[2].startswith("not checked: gone: in the baseline, but not under")
    # AND not if the runs to check are named
    assert check(capsys, *arguments, "--run", "large", "--run", "small")[0] == 0


def test_a_damaged_file_does_not_pass_in_silence(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = event_files(logdir / "pr" / "small")
    data = bytearray(file.read_bytes())
    data[-40] ^= 0xFF
    file.write_bytes(data)
    code, lines = check(capsys, logdir / "pr", "--max-peak", "2GiB")
    assert code == 2 and lines[1].startswith("not checked: small") and "damaged data: " in lines[1]


def test_a_run_that_ran_out_of_memory_is_violated(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small_run(tmp_path / "failed", allocator=True)
    assert check(capsys, tmp_path, "--max-peak", "1TiB") == (
        1,
        ["violated: failed, CPU:0: ran out of memory at step 59 (train): 8.0 MiB requested", "1 violated"],
    )


def test_json_holds_every_check(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, logdir / "pr", "--max-peak", "1000MiB", "--format", "json", "--run", "large")
    assert code == 1 and json.loads(lines[0]) == {
        "format": 1,
        "status": "violated",
        "checks": [
            {
                "run": "large",
                "device": "GPU:0",
                "limit": "max_peak",
                "status": "violated",
                "reason": "peak 1.1 GiB at step 1 (train), allowed 1000 MiB",
                "peak_bytes": 1100 * MIB,
                "step": 1,
                "phase": "train",
                "allowed_bytes": 1000 * MIB,
                "baseline_peak_bytes": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to check: pass --max-peak, or --max-regression with --baseline"),
        (["--max-peak", "ten"], "--max-peak is a size with its unit, such as 24GiB. Received: 'ten'"),
        (["--max-peak", "0"], "--max-peak is a size"),
        (["--max-peak", "1GiB", "--baseline", "x"], "--max-regression and --baseline belong together"),
        (["--max-regression", "5%"], "--max-regression and --baseline belong together"),
        (["--max-regression", "5", "--baseline", "x"], "a share such as 5% or a size such as 200MiB. Received: '5'"),
        (["--max-regression=-5%", "--baseline", "x"], "Received: '-5%'"),
        (["--max-regression", "5%", "--baseline", "/none"], "no directory /none"),
        (["--max-peak", "1GiB", "--run", "other"], "no run 'other'; available: large, small"),
        (["--max-peak", "1GiB", "--device", "GPU:7"], "no peak on GPU:7 in any run"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["check", str(logdir / "pr"), *(text if text != "x" else str(logdir) for text in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and sentence in captured.err


def test_nothing_to_check_is_code_2(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, tmp_path, "--max-peak", "1GiB")
    assert code == 2 and "no memory records" in lines[0]


def test_the_shell_gets_the_exit_code_without_tensorflow(logdir: pathlib.Path) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from tb_memplugin.cli import main\n"
        f"sys.exit(main(['check', {str(logdir / 'pr')!r}, '--max-peak', '1GiB']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout.endswith("1 within budget, 1 violated\n"), done.stderr


def test_names_from_a_run_directory_cannot_steer_the_terminal(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_peak(tmp_path / "exp", MIB, device="GPU:\x1b[31m0")
    _, lines = check(capsys, tmp_path, "--max-peak", "1GiB")
    assert "\x1b" not in "".join(lines)


def test_a_run_that_is_not_there_is_said_with_those_that_are(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = check(capsys, logdir / "pr", "--max-peak", "2GiB", "--run", "small", "--run", "smal")
    assert code == 2 and "no run" in lines[0] and "'smal'" in lines[0] and "small" in lines[0].partition("'smal'")[2]

"""Options of `tb-memplugin run`; a program under it prints, fails and ends as under plain
Python."""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
from reading_cases import write_small_run

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.cli.run import NOTHING, ending
from tb_memplugin.recorder.automatic import AutomaticRecording
from tb_memplugin.schema import PHASES

ROOT = pathlib.Path(__file__).resolve().parents[3]

PROGRAMS = {
    "facts": """
import os, sys, __main__

print(
    sys.argv,
    __name__,
    __file__,
    __spec__,
    __package__,
    __cached__,
    sys.path[0],
    __main__.__file__,
    __builtins__,
)
print(
    sorted(name for name in vars(__main__) if name not in ("os", "sys", "__main__")),
    __annotations__,
    __doc__,
)
print(
    sys.stdout.errors,
    sys.stderr.errors,
    [name for name in ("numpy", "tensorflow") if name in sys.modules],
)
import beside

print(beside.value)
""",
    "raises": """
def fail(): raise ValueError("näh")
try: fail()
except ValueError as error: raise RuntimeError("more") from error
""",
    "context": "try: 1 / 0\nexcept ZeroDivisionError: [][1]\n",
    "exit code": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('sorry')",
    "exit none": "raise SystemExit",
    "syntax": "x = = 3\n",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *a: "
    "print('mine', "
    "a[0].__name__, "
    "file=sys.stderr)\n1 / "
    "0\n",
    "broken hook": "import sys\ndef hook(*a): raise KeyError(5)\nsys.excepthook = hook\n1 / 0\n",
    "own error": "from tb_memplugin.errors import RequestError\nraise RequestError('theirs')",
    "pipe": "raise BrokenPipeError(32, 'theirs')",
    "end": """
import atexit, threading, time
atexit.register(print, "at exit")
def late(): time.sleep(0.2); print("thread", __name__)
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=[1000], daemon=True).start()  # not waited for
print("end")
""",
    "fork": "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nprint(child > "
    "0, "
    "flush=True)",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
}


def run(folder: pathlib.Path, command: Sequence[str], **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    stdout, stderr = (re.sub("0x[0-9a-f]+", "ADDRESS", text) for text in (done.stdout, done.stderr))
    return done.returncode, stdout, stderr


def compare(folder: pathlib.Path, *program: str) -> tuple[int, str, str]:
    plain = run(folder, [sys.executable, *program])
    recorded = run(folder, [sys.executable, "-m", "tb_memplugin", "run", "--no-summary", *program])
    assert recorded == plain
    assert not (folder / "runs").exists()
    return plain


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_behaves_as_under_python(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "beside.py").write_text("value = 5", encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAMS[name], encoding="utf-8")
    compare(tmp_path, "program.py", "--epochs", "3", "--logdir", "theirs", "-m", "--", "x")


def test_a_script_elsewhere_and_behind_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "beside.py").write_text("value = 6", encoding="utf-8")
    (tmp_path / "code" / "program.py").write_text(PROGRAMS["facts"], encoding="utf-8")
    (tmp_path / "link.py").symlink_to(tmp_path / "code" / "program.py")
    assert compare(tmp_path, "code/program.py")[0] == compare(tmp_path, "link.py")[0] == 0


def test_modules_and_directories(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text(
        "import sys; print(sys.argv, __name__, __package__, __spec__)"
    )
    (package / "fails.py").write_text("def f(): 1 / 0\nf()\n")
    assert compare(tmp_path, "-m", "package", "-m", "--run", "x")[0] == 0
    assert "ZeroDivisionError" in compare(tmp_path, "-m", "package.fails")[2]
    assert compare(tmp_path, "package", "a")[0] == 0
    code, _, stderr = compare(tmp_path, "-m", "no_such_module")
    assert code == 1 and "No module named no_such_module" in stderr


def test_the_end_says_that_nothing_was_recorded_on_stderr_only(tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text("print('out')", encoding="utf-8")
    code, stdout, stderr = run(
        tmp_path, [sys.executable, "-m", "tb_memplugin", "run", "program.py"]
    )
    assert (code, stdout) == (0, "out\n") and stderr.startswith("\nNothing was recorded: ")
    assert "or runs a `tf.compat.v1.Session`, names its steps" in stderr


def test_with_the_switch_nothing_is_added(tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys; print([name for name in sys.modules if 'automatic' in name or name == "
        "'numpy'], sys.meta_path)"
    )
    plain = run(tmp_path, [sys.executable, "program.py"])
    switched = run(
        tmp_path, [sys.executable, "-m", "tb_memplugin", "run", "program.py"], TB_MEMPLUGIN="0"
    )
    assert switched == plain


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--overhead", "2", "x.py"], "overhead is a share from 0"),
        (["--overhead", "nan", "x.py"], "overhead is a share from 0"),
        (["--trace-steps", "3,-1", "x.py"], "steps are integers"),
        (["--run", "../x", "x.py"], "plain directory name"),
        (["--unknown", "x.py"], "unrecognized arguments"),
        ([], "the following arguments are required"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and said in printed
    assert printed.startswith("tb-memplugin run: ") and printed.count("\n") == 1


def test_runs_are_summed_up_with_the_commands_that_show_more(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "my runs" / "one")
    write_small_run(tmp_path / "my runs" / "another")
    text = ending(str(tmp_path / "my runs"), "my runs", ["one", "missing"], ["A note."])
    assert text.startswith("\nmissing: nothing was written\n\nA note.\n\none: 60 steps (0 to 59)")
    commands = [
        "tensorboard --logdir 'my runs'",
        "tb-memplugin inspect 'my runs' --run one --verbose",
    ]
    assert text.splitlines()[-2:] == commands and "another" not in text
    # AND it is as short as the summary of `inspect`; of several runs there is a line each, and one
    # summary
    assert len(text.splitlines()) <= 4 + 20
    several = ending(str(tmp_path / "my runs"), "my runs", ["one", "another"], [])
    rows = [line.split()[0] for line in several.splitlines()[1:4]]
    assert rows == ["run", "one", "another"] and len(several.splitlines()) <= 5 + 20


def test_without_runs_it_says_why(tmp_path: pathlib.Path) -> None:
    assert ending(str(tmp_path), "runs", [], []) == f"\n{NOTHING}"


def test_the_printed_lines_record_a_loop_that_only_calls_a_model(tmp_path: pathlib.Path) -> None:
    made, step, closed = re.findall(r"`([^`]*recorder[^`]*)`", NOTHING)
    loop = f"{made}\nfor n in range(3):\n    {step}\n        call()\n{closed}\n"
    called: list[int] = []
    names = {"tb_memplugin": tb_memplugin, "call": lambda: called.append(1)}
    exec(loop.replace("runs/exp1", str(tmp_path / "exp1")), names)
    assert called == [1, 1, 1]
    run = tb_memplugin.load(tmp_path)["exp1"]
    assert run.samples.phase.tolist() == [PHASES.index("predict")] * 3
    assert ending(str(tmp_path), "runs", [], ["A note."]) == "\nA note."


@pytest.mark.parametrize(("signal", "recorded"), [(9, True), (15, True), (9, False)])
def test_a_killed_program_gets_one_line_with_its_run(
    tmp_path: pathlib.Path, signal: int, recorded: bool
) -> None:
    made = "os.makedirs('logs/mine')" if recorded else "pass"
    (tmp_path / "dies.py").write_text(
        f"import os, time\n{made}\nos.kill(os.getpid(), {signal})\ntime.sleep(60)\n"
    )
    options = ["--logdir", "logs", "--run", "mine", "dies.py"]
    code, _, told = run(tmp_path, [sys.executable, "-m", "tb_memplugin", "run", *options])
    assert code == -signal
    assert told.split("\n")[1:] == (
        [
            "The program was killed, or ended by os._exit. What was recorded: tb-memplugin "
            "inspect logs/mine",
            "",
        ]
        if recorded
        else []
    )


def test_a_program_with_a_recorder_of_its_own_is_not_told_that_it_called_nothing() -> None:
    recording = AutomaticRecording("runs", "exp1")
    recording.records_itself = True
    (note,) = recording.notes()
    assert note in ending("runs", "runs", [], [note]) and NOTHING not in ending(
        "runs", "runs", [], [note]
    )
    assert list(AutomaticRecording("runs", "exp1").notes()) == []

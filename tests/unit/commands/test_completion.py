"""Completion in each shell, in the shell itself where it is installed."""

import pathlib
import shutil
import subprocess

import pytest

from tb_memplugin.cli import main
from tb_memplugin.commands.completion import SHELLS


@pytest.fixture
def scripts(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    """A directory with the script of each shell, and a log directory whose name has a space."""
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        (tmp_path / f"script.{shell}").write_text(capsys.readouterr().out, encoding="utf-8")
    (tmp_path / "my runs").mkdir()
    return tmp_path


CASES = [
    (["ins"], {"inspect"}),
    (
        [""],
        {"run", "inspect", "what-if", "plan", "check", "view", "report", "export", "import", "completion", "doctor"},
    ),
    (["inspect", "runs", "--ph"], {"--phase"}),
    (["inspect", "runs", "--phase", ""], {"train", "validation", "predict"}),
    (["check", "x", "--format", "j"], {"json", "junit"}),
    (["completion", "f"], {"fish"}),
    (["inspect", "my"], {"my runs"}),
    (["check", "x", "--baseline", "my"], {"my runs"}),
    (["inspect", "x", "--run", "my"], set()),
]


def run(command: list[str], directory: pathlib.Path) -> list[str]:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_bash_completes(scripts: pathlib.Path, words: list[str], expected: set[str]) -> None:
    ask = (
        'source ./script.bash; COMP_WORDS=(tb-memplugin "$@"); COMP_CWORD=$#; _tb_memplugin; printf "%s\\n" '
        '"${COMPREPLY[@]}"'
    )
    found = set(run(["bash", "--norc", "-c", ask, "bash", *words], scripts)) - {""}
    assert found - {"--help", "--version"} == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_fish_completes(scripts: pathlib.Path, words: list[str], expected: set[str]) -> None:
    line = " ".join(["tb-memplugin", *words])
    found = {
        one.split("\t")[0].rstrip("/")
        for one in run(["fish", "--no-config", "-c", f"source script.fish; complete -C {line!r}"], scripts)
    }
    assert found == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_can_be_parsed(scripts: pathlib.Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    run([shell, "--no-execute" if shell == "fish" else "-n", f"script.{shell}"], scripts)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_is_in_each_script(scripts: pathlib.Path, shell: str) -> None:
    text = (scripts / f"script.{shell}").read_text(encoding="utf-8")
    for name in ("max-regression", "batch-size", "all-attempts", "logdir", "output", "port"):
        assert (f"-l {name}" if shell == "fish" else f"--{name}") in text

"""The options of `tb-memplugin run`."""

import argparse

import pytest

from tb_memplugin.commands.run.command import add_arguments, main


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_options_after_the_program_are_its_own() -> None:
    options = parse("--logdir", "a", "--trace-steps", "3,40", "train.py", "--logdir", "b", "-m", "--overhead", "x")
    assert (options.logdir, options.trace_steps, options.is_module) == ("a", [3, 40], False)
    assert options.arguments == ["--logdir", "b", "-m", "--overhead", "x"]
    assert parse("-m", "package.train", "--run", "x").program == "package.train"


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
def test_wrong_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--overhead", "2", "train.py"])
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and printed.startswith("tb-memplugin run: ") and printed.count("\n") == 1

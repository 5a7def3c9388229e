"""The command line: tables, JSON, and errors in one line."""

import dataclasses
import errno
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
from reading_cases import HELD_PATH, MIB, make_run, make_samples, make_snapshot, write_small_run

import tb_memplugin
from tb_memplugin.analysis import findings
from tb_memplugin.cli import main
from tb_memplugin.cli.commands import parser_for
from tb_memplugin.cli.runs import next_commands
from tb_memplugin.export.text import summarize_run
from tb_memplugin.schema import UNKNOWN, HeldTensorGroup, LedgerRow, Snapshot, TensorGroup
from tb_memplugin.storage.write import RunWriter

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("recorded") / "logs"
    write_small_run(directory / "frozen")
    write_small_run(directory / "all_trainable")
    return directory


def inspect(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_json_holds_every_run_and_options_select(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.loads(inspect(capsys, logdir, "--format", "json"))
    assert printed["format"] == 1 and sorted(printed["runs"]) == ["all_trainable", "frozen"]
    assert printed["runs"]["frozen"]["steps"] == 60
    select = ("--run", "frozen", "--step", 3, "--device", "CPU:0", "--phase", "train")
    (run,) = json.loads(inspect(capsys, logdir, *select, "--format", "json"))["runs"].values()
    assert [snapshot["step"] for snapshot in run["snapshots"]] == [3]


def test_the_table_shows_the_breakdown_of_the_peak(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = inspect(capsys, logdir, "--run", "frozen", "--verbose").splitlines()
    assert lines[0] == "frozen: 60 steps (0 to 59)"
    device = next(line for line in lines if line.startswith("  CPU:0"))
    assert device.split() == ["CPU:0", "0.68", "2.0", "1.3", "34", "%", "41", "2"]
    assert any(
        "traced step 41 (train, graph): 604 MiB in use at the peak" in line for line in lines
    )
    activations = next(line for line in lines if line.startswith("  activations"))
    assert activations.split() == ["activations", "600", "99.4", "%"]
    assert any("2 trainable with 3.8 MiB" in line for line in lines)


def test_held_tensors_and_the_replay_of_a_step_are_shown(logdir, capsys) -> None:
    lines = inspect(capsys, logdir, "--run", "frozen", "--step", 3, "--verbose").splitlines()
    assert "  replay: 3,079 of 3,080 addresses, 658 of 659 chunks" in lines
    head = next(at for at, line in enumerate(lines) if line.startswith("  tensors"))
    assert lines[head].split() == ["tensors", "held", "by", "made", "at", "count", "KiB"]
    assert lines[head + 1].split() == [
        *("float32", "[32,", "10]"),
        *("list", "`history`", "in", "module", "__main__"),
        *("train.py:42", "40", "50.0"),
    ]
    assert lines[head + 2].split() == ["float32", "[]", UNKNOWN, UNKNOWN, "1", "<0.01"]
    assert lines[head + 3] == f"  retaining path of float32 [32, 10]: {HELD_PATH}"
    assert "replay:" not in inspect(capsys, logdir, "--run", "frozen", "--step", 41, "--verbose")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--step", 20],
            "CPU:0: step 20 has no breakdown, it was not traced. The nearest is that of step 3.",
        ),
        (
            ["--step", 23],
            "CPU:0: step 23 has no breakdown, it was not traced. The nearest is that of step 41.",
        ),
        (
            ["--step", 500],
            "CPU:0: step 500 has no breakdown, it was not recorded. The nearest is that of step "
            "41.",
        ),
        (
            ["--step", 3, "--phase", "validation"],
            "CPU:0: step 3 has no breakdown, it was not traced. No step of phase validation has "
            "one.",
        ),
    ],
)
def test_a_step_without_a_breakdown_names_the_nearest(logdir, capsys, options, sentence) -> None:
    lines = inspect(capsys, logdir, "--run", "frozen", *options).splitlines()
    assert [line for line in lines if "has no breakdown" in line] == (
        [] if sentence is None else [sentence]
    )


def test_the_answers_come_first(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(capsys, logdir, "--run", "frozen", "--verbose").splitlines()[1:8] == [
        "",
        "CPU:0:",
        "  Fits?          700 MiB of 2.0 GiB at peak, 1.3 GiB headroom",
        "  Growing?       No growth over 60 steps (under 2.0 MiB)",
        "  Fragmented?    408 free at step 3, largest 128 MiB",
        "  What changed?  Step 30: unfroze backbone, +500 MiB",
        "                 Mainly activations +500 MiB.",
    ]
    answers = json.loads(inspect(capsys, logdir, "--run", "frozen", "--format", "json"))["runs"][
        "frozen"
    ]["answers"]
    assert [answer["name"] for answer in answers["CPU:0"]] == [
        "fits",
        "growing",
        "fragmented",
        "changed",
    ]


FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
JARGON = ("replay", "chunk", "unsplit", "unreserved", "traced")


@pytest.mark.parametrize(
    ("run", "layer", "said", "command"),
    [
        (
            "out_of_memory",
            ["encoder/block1_attention", "trainable", "236", "54.4", "%"],
            "96.0 MiB requested by layer encoder/block2_attention, Einsum, [96,4,256,256] float, "
            "demo/out_of_memory.py:46. Not enough free memory: 76.0 MiB.",
            "plan {} --run out_of_memory --budget 100%",
        ),
        (
            "small",
            ["model/head", "trainable", "4.0", "50.0", "%"],
            "Free memory is in pieces: 8.0 MiB, at most 6.0 MiB in one.",
            "inspect {} --run small --verbose",
        ),
    ],
)
def test_a_run_takes_twenty_lines_without_jargon(run, layer, said, command, capsys) -> None:
    text = inspect(capsys, FIXTURES / "runs", "--run", run)
    lines = text.splitlines()
    assert len(lines) <= 20 and not [word for word in JARGON if word in text]
    # THEN no answer is unknown, or said again by the failure's cause
    questions = [line.split("?")[0].strip() for line in lines[1 : lines.index("")]]
    assert questions[0] == "Fits" and "Fragmented" not in questions and "(unknown)" not in text
    head = next(
        at for at, line in enumerate(lines) if line.startswith("  memory at the failure, step ")
    )
    assert lines[head + 1].split() == layer
    # AND the layers, with the others, add up to what is in use at the failure
    (oom,) = tb_memplugin.load(FIXTURES / "runs")[run].ooms
    figures = re.findall(r" ([0-9.]+) +[0-9.]+ %$", "\n".join(lines[head:]), re.MULTILINE)
    assert sum(map(float, figures)) == pytest.approx(oom.in_use_bytes / (1 << 20), abs=0.3)
    assert said in " ".join(" ".join(lines).split())
    assert lines[-2] == f"tensorboard --logdir {FIXTURES / 'runs'}"
    assert lines[-1] == f"tb-memplugin {command}".format(FIXTURES / "runs")
    # AND the command that is printed runs and answers
    assert main(shlex.split(lines[-1])[1:]) in (0, 1) and capsys.readouterr().out


def test_free_memory_outside_the_pool_is_told_at_a_failure() -> None:
    # GIVEN a request of 37.5 MiB that no piece holds: of the pool's free memory, and of what it has
    # not taken yet
    run = tb_memplugin.load(FIXTURES / "runs")["small"]
    mib = 1 << 20
    sizes = {
        "requested_bytes": 75 * mib // 2,
        "free_bytes": 33 * mib,
        "largest_free_bytes": 30 * mib,
    }
    oom = dataclasses.replace(run.ooms[0], **sizes, pool_bytes=286 * mib, capacity_bytes=300 * mib)
    pieces = (
        "Free memory is in pieces: 33.0 MiB, at most 30.0 MiB in one, and 14.0 MiB outside the "
        "pool."
    )
    unknown = dataclasses.replace(oom, requested_bytes=None, verdict=None)
    for failure, said in (
        (oom, ("37.5 MiB requested", pieces)),
        (unknown, ("An unknown size requested", oom.reason)),
    ):
        text = " ".join(str(dataclasses.replace(run, ooms=(failure,))).split())
        assert all(one in text for one in said)


@pytest.mark.parametrize(
    ("during", "command"), [("step", "plan"), ("between_steps", "inspect"), ("building", "inspect")]
)
def test_a_plan_is_named_for_a_failure_that_a_step_explains(during: str, command: str) -> None:
    run = tb_memplugin.load(FIXTURES / "runs")["out_of_memory"]
    failed = dataclasses.replace(run, ooms=(dataclasses.replace(run.ooms[0], during=during),))
    assert next_commands(failed, "runs", None)[-1].split()[1] == command


def test_a_failure_before_any_traced_step_is_answered_by_a_run_of_the_same_layers() -> None:
    traced = tb_memplugin.load(FIXTURES / "runs")["out_of_memory"]
    (oom,) = traced.ooms
    failed = dataclasses.replace(oom, during="step")
    first = dataclasses.replace(traced, requests=(), ooms=(failed,))
    runs = {"batch_8": traced, "batch_96": first}
    assert next_commands(first, "runs", "batch_96", runs)[-1] == (
        "tb-memplugin what-if runs --run batch_8 --batch-size 96"
    )
    # AND without such a run, the next step is to measure
    for table in (dataclasses.replace(traced.layer_tables[-1], layers=()), None):
        other = dataclasses.replace(traced, layer_tables=() if table is None else (table,))
        *_, measure, _, command = next_commands(first, "runs", "batch_96", {"other": other})
        assert "largest_batch_size(model, data)" in measure
        assert command == "tb-memplugin inspect runs --run batch_96 --verbose"


def test_a_leak_is_said_first_and_whole() -> None:
    # GIVEN a leak of tensors that the longest of paths keeps, and a layer with less than them
    holder, line = (
        f"list `{'history' * 6}` in module {'.'.join(['package'] * 6)}",
        "demo/leak.py:79",
    )

    def holding(step: int) -> Snapshot:
        size = 4 * step * MIB
        held = HeldTensorGroup((64, 512), "float32", 1, size, holder, line)
        plain = make_snapshot(step, activations=20 * MIB, held_tensors=(held,))
        row = LedgerRow(None, "held_tensors", None, size, 0)
        made = TensorGroup((5, 5), "float32", 1, 20 * MIB, "model/backbone", "activations")
        return dataclasses.replace(
            plain,
            ledger=(row, *plain.ledger),
            in_use_bytes=plain.in_use_bytes + size,
            largest_tensors=(made,),
        )

    levels = [(100 + 4 * step) * MIB for step in range(100)]
    run = make_run(make_samples(range(100), levels), snapshots=(holding(10), holding(90)))
    found = dataclasses.replace(run, findings=tuple(findings({"": run})))
    lines = summarize_run(found).splitlines()
    said = lines[1 : next(at for at, one in enumerate(lines) if one.startswith("  Fits?"))]
    assert " ".join(map(str.strip, said)) == (
        f"Held tensors +320 MiB since step 10, kept alive by {holder}, made at {line}."
    )
    # THEN no finding says it again, and no layer is named though one has 5 % of the memory
    assert not [one for one in lines if one.startswith(("finding: ", "backbone "))]


def test_a_request_for_many_layers_counts_as_theirs() -> None:
    # GIVEN a failed request of a compiled step, whose layers are known
    run = tb_memplugin.load(FIXTURES / "runs")["out_of_memory"]
    (oom,) = run.ooms
    asked = dataclasses.replace(
        oom.ledger[0], layer="encoder/block2_attention", bytes=oom.requested_bytes
    )
    failed = dataclasses.replace(run, ooms=(dataclasses.replace(oom, request_ledger=(asked,)),))
    lines = str(failed).splitlines()
    head = lines.index("") + 1
    assert lines[head].startswith("  memory at the failure with the request, step 12")
    assert lines[head + 2].split() == ["encoder/block2_attention", "trainable", "120", "22.6", "%"]
    # AND the largest tensors inside it are said, not those that hold most of what is in use
    inside = dataclasses.replace(
        oom.largest_tensors[0], layer="block2", shape=(96, 7), count=1, bytes=90 << 20
    )
    told = dataclasses.replace(
        failed, ooms=(dataclasses.replace(failed.ooms[0], request_tensors=(inside,)),)
    )
    said = "96.0 MiB requested; most of it: one tensor of (96, 7) of block2, 90.0 MiB."
    assert said in str(told) and "block1_attention 236 MiB (54 %)" in str(failed)
    assert "block1_attention 236 MiB (54 %)" not in str(told)
    # AND a failure whose owners are unknown
    unknown = dataclasses.replace(oom, ledger=(), in_use_bytes=None)
    assert "No step has" in str(dataclasses.replace(run, ooms=(unknown,), snapshots=()))


def test_several_runs_are_a_line_each_and_the_worst_one(capsys) -> None:
    lines = inspect(capsys, FIXTURES / "runs").splitlines()
    statuses = [line.split()[:2] for line in lines[1:4]]
    assert statuses == [["finished", "ok"], ["out_of_memory", "failed"], ["small", "failed"]]
    assert lines[4] == "" and len(lines) <= 5 + 20
    assert lines[5:] == inspect(capsys, FIXTURES / "runs", "--run", "out_of_memory").splitlines()


def test_a_run_with_many_findings_and_notes_still_takes_twenty_lines(tmp_path, capsys) -> None:
    writer = RunWriter(tmp_path / "exp")
    writer.traced(make_snapshot(3))
    for at in range(30):
        writer.note(f"note {at}: " + "what was not recorded " * 20)
    writer.close()
    lines = inspect(capsys, tmp_path).splitlines()
    assert (
        len(lines) == 20
        and lines[-4].endswith(" more with --verbose")
        and lines[-1].startswith("tb-memplugin ")
    )
    assert inspect(capsys, tmp_path, "--verbose").count("note: note ") == 30


def write_at(directory: pathlib.Path, activations: int) -> None:
    writer = RunWriter(directory)
    writer.traced(make_snapshot(7, activations=activations))
    writer.samples(make_samples([7], [activations]))
    writer.close()


def test_two_runs_are_compared_in_the_order_typed(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    write_at(tmp_path / "runs" / "plain", 70 << 20)
    write_at(tmp_path / "runs" / "a_later_one", 30 << 20)
    printed = []
    for names in (
        ("plain", "a_later_one"),
        ("a_later_one", "plain"),
        ("a_later_one", "runs/plain"),
    ):
        assert main(["compare", *names]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[2].replace("runs/plain", "plain").split() == printed[1].split()
    for text, sign, names in (
        (printed[0], "−", ("plain", "a_later_one")),
        (printed[1], r"\+", ("a_later_one", "plain")),
    ):
        head, *sides = text.splitlines()[:3]
        assert re.search(rf", {sign}40.0 MiB$", head)
        assert [side.split(":")[0].strip() for side in sides] == [*names]
        assert re.search(rf"activations .* {sign}40.0 MiB\n", text)
    assert main(["compare", "a_later_one", "plain", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["before"]["run"], told["after"]["run"]) == ("a_later_one", "plain")
    assert told["change_bytes"] == 40 << 20
    # THEN categories and layers each sum to the breakdowns and to the change
    for rows in (told["categories"], told["layers"]):
        for side in ("before", "after"):
            assert sum(row[f"{side}_bytes"] for row in rows) == told[side]["in_use_bytes"]
        assert sum(row["change_bytes"] for row in rows) == told["change_bytes"]


def test_a_run_that_failed_is_compared_at_its_failure_though_a_step_peaked_higher(capsys) -> None:
    assert (
        main(
            ["compare", "finished", "small", "--logdir", str(FIXTURES / "runs"), "--format", "json"]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    sides = {side["run"]: side for side in (told["before"], told["after"])}
    assert (sides["small"]["step"], sides["small"]["at_failure"]) == (59, True)
    assert (
        sides["finished"]["step"] == 41
        and sides["finished"]["in_use_bytes"] > sides["small"]["in_use_bytes"]
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["frozn", "all_trainable"],
            "no run 'frozn'; did you mean 'frozen'? Available: all_trainable, frozen",
        ),
        (["frozen", "."], ". has several runs: all_trainable, frozen. Name one of them"),
        (
            ["frozen", "all_trainable", "--device", "GPU:0"],
            "has no breakdown on GPU:0: no step was traced there",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(arguments, sentence, logdir, capsys, monkeypatch) -> None:
    monkeypatch.chdir(logdir)
    assert main(["compare", "--logdir", str(logdir), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and sentence in printed.err


def test_all_attempts_are_kept_on_request(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        writer = RunWriter(tmp_path / "exp")
        writer.traced(make_snapshot(3))
        writer.close()
    counts = [
        len(
            json.loads(inspect(capsys, tmp_path, "--format", "json", *more))["runs"]["exp"][
                "snapshots"
            ]
        )
        for more in ([], ["--all-attempts"])
    ]
    assert counts == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing"], "no directory"),
        (["empty"], "MemoryCallback"),
        (["--run", "other"], "no run 'other'; available: all_trainable, frozen"),
        (["--device", "GPU:0"], "no device 'GPU:0'; available: CPU:0"),
    ],
)
def test_a_users_error_is_one_line_and_code_2(logdir, capsys, arguments, sentence) -> None:
    (logdir.parent / "empty").mkdir(exist_ok=True)
    targets = {"missing": [str(logdir / "missing")], "empty": [str(logdir.parent / "empty")]}
    assert main(["inspect", *targets.get(arguments[0], [str(logdir), *arguments])]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and sentence in captured.err


def parse_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    captured = capsys.readouterr()
    assert exit_info.value.code == 2 and captured.out == "" and captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["plan"],
            "tb-memplugin plan: the following arguments are required: --budget (see tb-memplugin "
            "plan --help)",
        ),
        (["inspect", "x", "--step", "-1"], "step must be an integer >= 0"),
        (
            ["inspct", "x"],
            "tb-memplugin: unknown command 'inspct'; did you mean 'inspect'? Choose from run, "
            "runs, inspect, ",
        ),
        (
            ["inspect", "x", "--stepp", "3"],
            "inspect: unknown option --stepp; did you mean '--step'? (see tb-memplugin inspect "
            "--help)\n",
        ),
        (
            ["what-if", "x", "--batchsize=3"],
            "what-if: unknown option --batchsize; did you mean '--batch-size'?",
        ),
        (["inspect", "x", "y"], "unexpected argument 'y'"),
        (
            ["inspect", "x", "--phase", "tran"],
            "argument --phase: invalid choice 'tran'; did you mean 'train'?",
        ),
        (["inspect", "x", "--bad\x1b[31m\n"], "unknown option --bad�[31m�"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(arguments, sentence, capsys) -> None:
    assert sentence in parse_error(capsys, *arguments)


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for arguments in ([], ["--help"]):
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        assert exit_info.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and "examples:" in printed[0]


def test_the_directory_of_the_runs_is_runs_by_default(logdir, capsys, monkeypatch) -> None:
    monkeypatch.chdir(logdir)
    for command in (
        ["inspect"],
        ["plan", "--budget", "1GiB"],
        ["check", "--max-peak", "2GiB"],
        ["report", "-o", "r"],
    ):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(
            "tb-memplugin: no directory runs here. Pass the directory"
        )
    monkeypatch.chdir(logdir.parent)
    (logdir.parent / "runs").symlink_to(logdir)
    assert "frozen" in inspect(capsys)
    assert main(["check", "--max-peak", "2GiB"]) == 0


COMMANDS = (
    "run",
    "runs",
    "inspect",
    "compare",
    "what-if",
    "plan",
    "check",
    "report",
    "export",
    "import",
    "doctor",
)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=str)
def test_help_has_examples_that_can_be_parsed_and_exit_codes(command, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as exit_info:
        main([*command, "--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    examples = text[text.index("\nexamples:\n") : text.index("\nexit codes:\n")].splitlines()[2:]
    lines = [line.strip() for line in examples if line]
    assert lines
    for line in lines:
        arguments = shlex.split(line)
        assert arguments[0] == "tb-memplugin" and arguments[1] in (command or COMMANDS)
        parser_for(arguments).parse_args(arguments[1:])
    # AND the sentences are wrapped, but for those of the command that reads its arguments itself
    assert command == ("run",) or all(
        len(line) <= 60 for line in text.splitlines() if line[:1].isupper()
    )
    codes = text[text.index("\nexit codes:\n") :].split("\n")[2:]
    expected = {
        ("check",): ["0", "1", "2"],
        ("export",): ["0", "1", "2"],
        ("run",): ["2"],
        ("what-if",): ["0", "1", "2"],
        ("plan",): ["0", "1", "2"],
        ("doctor",): ["0", "1"],
    }.get(command, ["0", "2"])
    assert [line.split()[0] for line in codes if line[2:3].isdigit()] == expected


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            2,
            "No space left on device: /tmp/x",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_of_the_machine_and_an_interrupt_are_one_line(
    logdir: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    def fails(*_: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("tb_memplugin.cli.runs.existing_runs", fails)
    assert main(["inspect", str(logdir)]) == code
    assert capsys.readouterr().err == f"tb-memplugin: {sentence}\n"


def test_names_from_a_run_directory_cannot_steer_the_terminal(tmp_path, capsys) -> None:
    # GIVEN a layer, a device and a sentence with escape sequences, line breaks and a name of a
    # megabyte
    taken = make_snapshot(0, device="GPU:\x1b[31m0")
    rows = (
        dataclasses.replace(taken.ledger[0], layer="a\x1b]0;title\x07\nb\u202eevil"),
        *taken.ledger[1:],
    )
    writer = RunWriter(tmp_path / "exp")
    writer.traced(dataclasses.replace(taken, ledger=rows, not_available=("x\r\x1b[2J",)))
    writer.samples(make_samples([0], [1], device="d" * 4000))
    writer.note("y" * 1_000 + "\x9b31m")
    writer.close()
    for printed in (inspect(capsys, tmp_path), inspect(capsys, tmp_path, "--verbose")):
        assert not any(ord(character) < 32 and character != "\n" for character in printed)
        assert "\x9b" not in printed and "\u202e" not in printed and "a�]0;title" in printed


def test_python_dash_m_is_the_command(logdir: pathlib.Path) -> None:
    code = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "tb_memplugin",
        "inspect",
        str(logdir),
        "--run",
        "frozen",
    ]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("frozen: 60 steps")
    # AND with TensorFlow installed it is not imported either
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not {"tensorflow", "keras"} & imported


def test_a_reader_that_stops_early_is_no_error(logdir: pathlib.Path) -> None:
    command = f"{sys.executable} -m tb_memplugin inspect {logdir} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "" and done.returncode == 0


def test_a_terminal_without_unicode_is_no_error(tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose name and device ASCII cannot print
    writer = RunWriter(tmp_path / "größe")
    writer.samples(make_samples([0], [1], device="層:0"))
    writer.close()
    for arguments in (["inspect", str(tmp_path)], ["inspect", str(tmp_path), "--run", "größer"]):
        done = subprocess.run(
            [sys.executable, "-m", "tb_memplugin", *arguments],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            timeout=60,
        )
        assert b"Traceback" not in done.stderr and b"gr?" in done.stdout + done.stderr


def documented_commands() -> list[str]:
    """The commands in README and docs, without those that leave something out."""
    found = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(
            r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL
        ):
            for line in block.replace("\\\n", "").splitlines():
                command = re.match(r"(?:source <\()?(tb-memplugin [^#&|;)]*)", line)
                text = "" if command is None else command[1].partition(" >")[0].strip()
                if text and not re.search(r"[\[…]", text):
                    found.append(text)
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("text", documented_commands())
def test_documented_commands_can_be_parsed(text: str) -> None:
    _, name, *arguments = shlex.split(text)
    assert name in COMMANDS or name.startswith("-")
    assert parser_for([name]).parse_args([name, *arguments]) is not None


def test_options_after_the_program_are_its_own() -> None:
    theirs = ["--logdir", "b", "-m", "--overhead", "x"]
    given = ["run", "--logdir", "a", "--trace-steps", "3,40", "train.py", *theirs]
    options = parser_for(given).parse_args(given)
    assert (options.logdir, options.trace_steps, options.is_module) == ("a", [3, 40], False)
    assert options.arguments == theirs


DERIVED = ("sentences", "sentence", "reason", "answers", "compared", "host_memory", "findings")
"""Keys whose values are made while reading, and are tested with their analysis."""


def stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: stored(one) for key, one in value.items() if key not in DERIVED}
    return [stored(one) for one in value] if isinstance(value, list) else value


def test_stored_runs_are_described_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(FIXTURES / "runs"), "--format", "json"]) == 0
    now = json.loads(capsys.readouterr().out)
    before = json.loads((FIXTURES / "inspected.json").read_text(encoding="utf-8"))
    assert stored(now) == stored(before)
    assert sorted(now["runs"]) == ["finished", "out_of_memory", "small"]
    assert len(now["runs"]["out_of_memory"]["oom"]) == 1

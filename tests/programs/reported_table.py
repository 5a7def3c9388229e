"""Runs the programs of tests/programs/reported; prints what the tool says beside the truth, as in docs/programs.md.

Each of them once got a wrong number, a false "Fits" or a broken thread. They run as users type them: recorded by their
own lines, or without a change by ``tb-memplugin run``. Each row's truth comes from elsewhere: a formula, the program
run at the other batch size, the size in TensorFlow's own message, the parameters of the layers.

usage: python tests/programs/reported_table.py [--write docs/programs.md] [NAME …]
"""

import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

HERE = pathlib.Path(__file__).parent / "reported"
sys.path.insert(0, str(HERE.parent.parent / "integration"))

from prepared_python import bare_environment  # noqa: E402

import tb_memplugin  # noqa: E402
from tb_memplugin.model import Run  # noqa: E402

MIB = 1 << 20
TITLE = "\n## Programs that failed once\n"
HEAD = """
Programs and logs (in `tests/programs/reported`) that once got a wrong number, a false "Fits" or a broken thread, each
run as a user types it. `python tests/programs/reported_table.py --write docs/programs.md` writes this table. The truth
comes from elsewhere: a formula, the size in TensorFlow's own message, Keras's counts, or the program run at the other
batch size in the same call; steps of one CPU program differ by several percent from process to process.

| program | what a user does | truth | before | now |
|---|---|---|---|---|
"""
TIMEOUT = 600


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        name: The program's file without suffix, and what tells the row from others of it.
        what: What a user does.
        truth: What is right, with its source.
        before: What the tool said.
        now: Runs it in an empty directory and returns what the tool says.
    """

    name: str
    what: str
    truth: str
    before: str
    now: Callable[[pathlib.Path], str]


def python(folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """This Python in an environment in which nothing steers TensorFlow."""
    command = [sys.executable, *arguments]
    environment = bare_environment()
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT
    )


def program(folder: pathlib.Path, name: str, *arguments: str) -> str:
    """The output of a program."""
    done = python(folder, str(HERE / f"{name}.py"), *arguments)
    return done.stdout + done.stderr


def recorded(folder: pathlib.Path, name: str, *arguments: str) -> pathlib.Path:
    """The log directory of a program that is recorded without a change."""
    python(folder, "-m", "tb_memplugin", "run", "--logdir", "runs", str(HERE / f"{name}.py"), *arguments)
    return folder / "runs"


def cli(folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return python(folder, "-m", "tb_memplugin", *arguments)


def newest(logdir: pathlib.Path) -> Run:
    """The last run of a log directory."""
    runs = list(tb_memplugin.load(str(logdir)).values())
    assert runs, f"no run in {logdir}"
    return runs[-1]


def bytes_of(run: Run, category: str, layer: str | None = None) -> int:
    """Bytes of a category, and of a layer, in the last breakdown."""
    rows = [row for row in run.snapshots[-1].ledger if row.category == category]
    return sum(row.bytes for row in rows if layer is None or (row.layer or "").endswith(layer))


# --- predictions: the program is run at both sizes ------------------------------------------------------------------


def predicted(name: str, before: Sequence[str], after: Sequence[str], batch: int) -> Callable[[pathlib.Path], str]:
    """Records a program with some arguments, predicts another batch size, and runs it there as well."""

    def now(folder: pathlib.Path) -> str:
        for label, arguments in (("small", before), ("large", after)):
            program(folder, name, *(argument.replace("LOG", f"{label}/run") for argument in arguments))
        small, large = newest(folder / "small"), newest(folder / "large")
        device = next(iter(large.samples.devices.values()))
        real = statistics.median(device.peak_bytes[3:].tolist()) / MIB
        answer = tb_memplugin.what_if(small, batch_size=batch)
        found = answer.prediction
        if answer.peak_bytes is None or found.low_bytes is None or found.high_bytes is None:
            return f"{real:.1f} MiB real; {answer.sentence}"
        low, peak, high = (size / MIB for size in (found.low_bytes, answer.peak_bytes, found.high_bytes))
        return f"{real:.1f} MiB real; {peak:.1f} [{low:.1f}, {high:.1f}], {found.method}"

    return now


# --- failures ---------------------------------------------------------------------------------------------------------


def failure(name: str, *arguments: str, changed: bool = False) -> Callable[[pathlib.Path], str]:
    """The failed request of a program's newest run, and the exit code of `check`."""

    def now(folder: pathlib.Path) -> str:
        if changed:
            program(folder, name, *arguments)
            logdir = next((folder / "runs").iterdir(), folder / "runs")
        else:
            logdir = recorded(folder, name, *arguments)
        code = cli(folder, "check", str(logdir), "--max-peak", "1TiB").returncode
        runs = list(tb_memplugin.load(str(logdir)).values()) if logdir.exists() else []
        failures = [oom for run in runs for oom in run.ooms]
        if not failures:
            return f"{'no run' if not runs else 'no failure'}; `check` {code}"
        size = failures[-1].requested_bytes
        about = f"{failures[-1].op or 'op unknown'}, layer {failures[-1].layer or '–'}"
        return f"OOM of {'?' if size is None else f'{size:,}'} bytes ({about}); `check` {code}"

    return now


# --- breakdowns -------------------------------------------------------------------------------------------------------


def breakdown(
    name: str, logdir: str | None, tell: Callable[[Run], str], *arguments: str
) -> Callable[[pathlib.Path], str]:
    """What a program's last run says; without `logdir` the program is recorded without a change."""

    def now(folder: pathlib.Path) -> str:
        if logdir is None:
            return tell(newest(recorded(folder, name, *arguments)))
        program(folder, name, *arguments)
        return tell(newest(folder / logdir))

    return now


def largest(run: Run) -> str:
    """The largest rows of the last breakdown."""
    rows = sorted(run.snapshots[-1].ledger, key=lambda row: -row.bytes)[:2]
    return ", ".join(f"{row.category} {row.bytes:,} ({row.layer or '–'})" for row in rows)


def shared_weights(run: Run) -> str:
    """Bytes of weights at the layers that two models share."""
    return f"c1 {bytes_of(run, 'weights', 'c1'):,}, c2 {bytes_of(run, 'weights', 'c2'):,} bytes"


def inspected(name: str, pattern: str, *arguments: str, logdir: str | None = None) -> Callable[[pathlib.Path], str]:
    """The first match of a pattern in what `inspect` prints."""

    def now(folder: pathlib.Path) -> str:
        if logdir is None:
            recorded(folder, name, *arguments)
        else:
            program(folder, name, *arguments)
        text = cli(folder, "inspect", logdir or "runs").stdout
        found = re.search(pattern, text)
        return "silent" if found is None else " ".join(found[0].split())

    return now


def lines(name: str, pattern: str, *arguments: str) -> Callable[[pathlib.Path], str]:
    """The matches of a pattern in a program's own output."""
    return lambda folder: "; ".join(re.findall(pattern, program(folder, name, *arguments))) or "none"


def log(name: str) -> Callable[[pathlib.Path], str]:
    """What is read from a log."""

    def now(folder: pathlib.Path) -> str:
        done = cli(folder, "import", str(HERE / "logs" / f"{name}.log"), "--logdir", "runs", "--run", "job")
        if done.returncode:
            return " ".join(done.stderr.split())
        told = json.loads(cli(folder, "inspect", "runs", "--format", "json").stdout)["runs"]["job"]["oom"][0]
        requested, free = told["requested_bytes"], told["free_bytes"]
        shown = ["?" if size is None else f"{size:,}" for size in (requested, free)]
        return f"{shown[0]} bytes requested, {shown[1]} free: {told['verdict']}"

    return now


CASES = (
    Case(
        "audit_hook",
        "another thread fills tuples beside an audit hook",
        "0 SystemErrors",
        "19 to 27 in 10 s",
        lines("audit_hook", r"SystemErrors \d+", "hook"),
    ),
    Case(
        "dqn_batch, 256 → 1,024",
        "a policy acts on one observation, then learns from a batch",
        "13.0 MiB, run",
        "1,536 MiB",
        predicted("dqn_batch", ("256", "LOG"), ("1024", "LOG"), 1024),
    ),
    Case(
        "boxes, 8 → 32",
        "a list of boxes for each image",
        "13.1 MiB, run",
        "2.8 [2.6, 3.4]",
        predicted("boxes", ("8", "boxes", "LOG"), ("32", "boxes", "LOG"), 32),
    ),
    Case(
        "boxes, time-major, 64 → 256",
        "rollouts of shape (time, batch, …)",
        "22.7 MiB, run",
        "51.1 [48.5, 53.1]",
        predicted("boxes", ("64", "time", "LOG"), ("256", "time", "LOG"), 256),
    ),
    Case(
        "static_batch, 64 → 512",
        "`drop_remainder`, and one `boolean_mask` in the loss",
        "32.3 MiB, run",
        "12.1 [10.1, 14.2], replay",
        predicted("static_batch", ("64", "mask", "LOG"), ("512", "mask", "LOG"), 512),
    ),
    Case(
        "padded, 32 → 128",
        "`padded_batch`",
        "13.5 MiB, run",
        "10.0 [5.7, 14.5]",
        predicted("padded", ("32", "64", "LOG"), ("128", "64", "LOG"), 128),
    ),
    Case(
        "simclr, 250 → 1,000",
        "logits of (2 × batch, 2 × batch)",
        "20.0 MiB, run",
        "7.9 [6.2, 8.9], replay",
        predicted("simclr", ("250", "2", "open", "LOG"), ("1000", "2", "open", "LOG"), 1000),
    ),
    Case(
        "simclr, one view, static",
        "logits of (batch, batch), and a static batch",
        "run",
        "–",
        predicted("simclr", ("250", "1", "static", "LOG"), ("1000", "1", "static", "LOG"), 1000),
    ),
    Case(
        "features",
        "a feature extractor over a backbone's layers",
        "c1 3,584, c2 73,984 bytes of weights, Keras",
        "0, 0",
        breakdown("features", "feat", shared_weights),
    ),
    Case(
        "ema",
        "a mean teacher by `assign`",
        "some bytes of other state: nothing is kept",
        "6.0 MiB",
        breakdown("ema", "ema", lambda run: f"{bytes_of(run, 'other_state'):,} bytes"),
    ),
    Case(
        "gp",
        "a gradient penalty",
        "9,600 KiB saved, the graph's ops",
        "5,132 KiB",
        lines("gp", r"(?:outer gradient's ops|saved for backward): \d+ KiB", "32", "gp/run"),
    ),
    Case(
        "replaybuf",
        "a replay buffer in a variable",
        "40,960,000 bytes owned, formula",
        "unattributed, 61 %",
        breakdown("replaybuf", "rbuf", largest),
    ),
    Case(
        "textplan",
        "a plan with TextVectorization in a segment",
        "`remat` accepts what `plan` names",
        "RecomputationError",
        lines("textplan", r"remat(?: trains|: \w+)", "text"),
    ),
    Case(
        "textremat",
        "`remat` of a segment with TextVectorization",
        "it trains",
        "RecomputationError",
        lines("textremat", r"called (?:True|False) \w+"),
    ),
    Case(
        "first_build",
        "weights are made inside `fit` and do not fit",
        "411,041,792 bytes, shape; `check` 1",
        "“Fits: 2.2 of 250 MiB”; `check` 0",
        failure("first_build"),
    ),
    *(
        Case(
            f"cb_oom_try {where} {order}",
            f"a callback's own forward pass, {where}, {'ours' if order == '1' else 'theirs'} first",
            "134,217,728 bytes, shape; `check` 1",
            "“Fits”, or no run, in 7 of 10",
            failure("cb_oom_try", where, order, changed=True),
        )
        for where in ("epoch", "batch", "end", "begin", "after")
        for order in ("0", "1")
    ),
    Case(
        "build_oom",
        "the model does not even build",
        "411,041,792 bytes, shape; `check` 1",
        "“Nothing was recorded”",
        failure("build_oom"),
    ),
    Case(
        "slots_oom",
        "the first step fails, the model is built in it",
        "the request of fc1, 102,760,448 bytes",
        "the pipeline's GatherV2",
        failure("slots_oom"),
    ),
    Case(
        "slots_oom, built",
        "the first step fails, the slots do not fit",
        "a request of 102,760,448 bytes",
        "the pipeline's GatherV2",
        failure("slots_oom", "built"),
    ),
    Case(
        "load_loop",
        "`load_model` and `predict` in a loop",
        "“`gc.collect()` frees …”",
        "silent",
        inspected("load_loop", r"`gc\.collect\(\)` frees [\d.]+ [KMG]iB"),
    ),
    Case(
        "holder_cycle",
        "tensors in reference cycles",
        "only the collector frees them",
        "“held by –”",
        inspected("holder_cycle", r"[^.\n]*gc\.collect\(\)[^.\n]*"),
    ),
    *(
        Case(
            name,
            f"gradients for each example, {how}",
            "8,388,608 bytes of weight gradients, formula",
            "activation gradients",
            breakdown(name, None, lambda run: f"weight gradients {bytes_of(run, 'weight_gradients'):,}"),
        )
        for name, how in (("jacobian", "`tape.jacobian`"), ("vecmap", "`vectorized_map`"))
    ),
    Case(
        "consts",
        "NumPy arrays inside a function",
        "21,012,480 bytes with owner, formula",
        "unattributed, 94 %",
        breakdown("consts", None, largest),
    ),
    Case(
        "const_layer",
        "a NumPy array inside a layer",
        "16,777,216 bytes of its layer, formula",
        "other state",
        breakdown("const_layer", None, largest),
    ),
    Case(
        "gen_cache",
        "a data set keeps its NumPy batches",
        "2 MiB a step, and the holder `seen`",
        "the rate",
        inspected("gen_cache", r"\+[^\n]*`seen`[^\n(]*"),
    ),
    Case(
        "iters",
        "iterators that Python keeps",
        "the rate, and the holder `kept`",
        "the rate",
        inspected("iters", r"\+[^\n]*`kept`[^\n(]*"),
    ),
    Case(
        "boundmethod",
        "retraced steps, then what if",
        "a true reason",
        "an untrue one",
        lambda folder: " ".join(
            cli(folder, "what-if", str(recorded(folder, "boundmethod")), "--batch-size", "64").stdout.split()
        )[:160],
    ),
    Case(
        "arrays_device",
        "arrays in `fit`",
        "data set (62.5 MiB) and batch apart, formula",
        "inputs 64.3 MiB",
        inspected("arrays_device", r"[^\n]*data set[^\n]*"),
    ),
    Case("tf14_conv.log", "the end of a log", "77,760,000 of 77,070,336 free: capacity", "verdict –", log("tf14_conv")),
    Case("tf18_adam.log", "chunks and a message", "246,016,000", "unknown", log("tf18_adam")),
    Case("tf08_test_set.log", "a summary by size", "31,360,000 of 13,175,296: capacity", "–", log("tf08_test_set")),
    Case("tf26_dst_tensor.log", "“Dst tensor is not initialized”", "a failure", "refused", log("tf26_dst_tensor")),
    Case("tf010_proto.log", "“Cannot parse tensor from proto”", "a hint", "refused", log("tf010_proto")),
)


def row(case: Case) -> str:
    """The table's row of a case."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        now = case.now(folder)
    except Exception as error:  # what went wrong belongs in the row
        now = f"**failed: {type(error).__name__}: {error}**"
    finally:
        shutil.rmtree(folder)
    return (
        "| "
        + " | ".join(
            text.replace("|", "\\|") for text in ("`" + case.name + "`", case.what, case.truth, case.before, now)
        )
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="beginnings of rows' names")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if not options.names or case.name.startswith(tuple(options.names)):
            rows.append(row(case))
            print(rows[-1], flush=True)
    if options.write:
        page = options.write.read_text(encoding="utf-8").partition(TITLE)[0]
        options.write.write_text(page + TITLE + HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

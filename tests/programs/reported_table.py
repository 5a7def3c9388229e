"""Runs the programs of tests/programs/reported and renews what the tool says of them in
docs/development/programs.md.

Each of them once got a wrong number, a false "Fits" or a broken thread. They run as users type
them: recorded by their own lines, or without a change by ``tb-memplugin run``. Each row's truth
comes from elsewhere: a formula, the program run at the other batch size, the size in TensorFlow's
own message, the parameters of the layers.

The page has the other cells of each row: what a user does, and the truth.

usage: python tests/programs/reported_table.py [--write] [NAME …]
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence

HERE = pathlib.Path(__file__).parent / "reported"
sys.path.insert(0, str(HERE.parent.parent / "integration"))

from prepared_python import bare_environment  # noqa: E402

import tb_memplugin  # noqa: E402
from tb_memplugin.schema import Run  # noqa: E402

MIB = 1 << 20
PAGE = HERE.parents[2] / "docs" / "development" / "programs.md"
TITLE = "\n## Programs that failed once\n"
TIMEOUT = 600


def python(folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """This Python in an environment in which nothing steers TensorFlow."""
    command = [sys.executable, *arguments]
    environment = bare_environment()
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )


def program(folder: pathlib.Path, name: str, *arguments: str) -> str:
    """The output of a program."""
    done = python(folder, str(HERE / f"{name}.py"), *arguments)
    return done.stdout + done.stderr


def recorded(folder: pathlib.Path, name: str, *arguments: str) -> pathlib.Path:
    """The log directory of a program that is recorded without a change."""
    python(
        folder,
        "-m",
        "tb_memplugin",
        "run",
        "--logdir",
        "runs",
        str(HERE / f"{name}.py"),
        *arguments,
    )
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


def predicted(
    name: str, before: Sequence[str], after: Sequence[str], batch: int
) -> Callable[[pathlib.Path], str]:
    """Records a program with some arguments, predicts another batch size, and runs it there as
    well."""

    def now(folder: pathlib.Path) -> str:
        for label, arguments in (("small", before), ("large", after)):
            program(
                folder, name, *(argument.replace("LOG", f"{label}/run") for argument in arguments)
            )
        small, large = newest(folder / "small"), newest(folder / "large")
        device = next(iter(large.samples.devices.values()))
        real = statistics.median(device.peak_bytes[3:].tolist()) / MIB
        answer = tb_memplugin.what_if(small, batch_size=batch)
        found = answer.prediction
        if answer.peak_bytes is None or found.low_bytes is None or found.high_bytes is None:
            return f"{real:.1f} MiB real; {answer.sentence}"
        low, peak, high = (
            size / MIB for size in (found.low_bytes, answer.peak_bytes, found.high_bytes)
        )
        return f"{real:.1f} MiB real; {peak:.1f} [{low:.1f}, {high:.1f}], {found.method}"

    return now


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


def every(ways: Iterable[Callable[[pathlib.Path], str]]) -> Callable[[pathlib.Path], str]:
    """What is said in each of several ways to run a program, once if it is the same."""
    chosen = list(ways)

    def now(folder: pathlib.Path) -> str:
        said = {}
        for number, way in enumerate(chosen):
            place = folder / str(number)
            place.mkdir()
            said[way(place)] = None
        return "; ".join(said)

    return now


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


def inspected(
    name: str, pattern: str, *arguments: str, logdir: str | None = None
) -> Callable[[pathlib.Path], str]:
    """The first match of a pattern in what `inspect` prints."""

    def now(folder: pathlib.Path) -> str:
        if logdir is None:
            recorded(folder, name, *arguments)
        else:
            program(folder, name, *arguments)
        text = cli(folder, "inspect", logdir or "runs", "--verbose").stdout
        found = re.search(pattern, text)
        return "silent" if found is None else " ".join(found[0].split())

    return now


def lines(name: str, pattern: str, *arguments: str) -> Callable[[pathlib.Path], str]:
    """The matches of a pattern in a program's own output."""
    return lambda folder: (
        "; ".join(re.findall(pattern, program(folder, name, *arguments))) or "none"
    )


def log(name: str) -> Callable[[pathlib.Path], str]:
    """What is read from a log."""

    def now(folder: pathlib.Path) -> str:
        done = cli(
            folder, "import", str(HERE / "logs" / f"{name}.log"), "--logdir", "runs", "--run", "job"
        )
        if done.returncode:
            return " ".join(done.stderr.split())
        told = json.loads(cli(folder, "inspect", "runs", "--format", "json").stdout)["runs"]["job"][
            "oom"
        ][0]
        requested, free = told["requested_bytes"], told["free_bytes"]
        shown = ["?" if size is None else f"{size:,}" for size in (requested, free)]
        return f"{shown[0]} bytes requested, {shown[1]} free: {told['verdict']}"

    return now


CASES: dict[str, Callable[[pathlib.Path], str]] = {
    "audit_hook": lines("audit_hook", r"SystemErrors \d+", "hook"),
    "dqn_batch, 256 → 1,024": predicted("dqn_batch", ("256", "LOG"), ("1024", "LOG"), 1024),
    "boxes, 8 → 32": predicted("boxes", ("8", "boxes", "LOG"), ("32", "boxes", "LOG"), 32),
    "boxes, time-major, 64 → 256": predicted(
        "boxes", ("64", "time", "LOG"), ("256", "time", "LOG"), 256
    ),
    "static_batch, 64 → 512": predicted(
        "static_batch", ("64", "mask", "LOG"), ("512", "mask", "LOG"), 512
    ),
    "padded, 32 → 128": predicted("padded", ("32", "64", "LOG"), ("128", "64", "LOG"), 128),
    "simclr, 250 → 1,000": predicted(
        "simclr", ("250", "2", "open", "LOG"), ("1000", "2", "open", "LOG"), 1000
    ),
    "simclr, one view, static": predicted(
        "simclr", ("250", "1", "static", "LOG"), ("1000", "1", "static", "LOG"), 1000
    ),
    "features": breakdown("features", "feat", shared_weights),
    "ema": breakdown("ema", "ema", lambda run: f"{bytes_of(run, 'other_state'):,} bytes"),
    "gp": lines("gp", r"(?:outer gradient's ops|saved for backward): \d+ KiB", "32", "gp/run"),
    "replaybuf": breakdown("replaybuf", "rbuf", largest),
    "textplan": lines("textplan", r"remat(?: trains|: \w+)", "text"),
    "textremat": lines("textremat", r"called (?:True|False) \w+"),
    "first_build": failure("first_build"),
    "cb_oom_try": every(
        failure("cb_oom_try", where, order, changed=True)
        for where in ("epoch", "batch", "end", "begin", "after")
        for order in ("0", "1")
    ),
    "build_oom": failure("build_oom"),
    "slots_oom": failure("slots_oom"),
    "slots_oom, built": failure("slots_oom", "built"),
    "load_loop": inspected("load_loop", r"`gc\.collect\(\)` frees [\d.]+ [KMG]iB"),
    "holder_cycle": inspected("holder_cycle", r"[^.\n]*gc\.collect\(\)[^.\n]*"),
    **{
        name: breakdown(
            name, None, lambda run: f"weight gradients {bytes_of(run, 'weight_gradients'):,}"
        )
        for name in ("jacobian", "vecmap")
    },
    "consts": breakdown("consts", None, largest),
    "const_layer": breakdown("const_layer", None, largest),
    "gen_cache": inspected("gen_cache", r"\+[^\n]*`seen`[^\n(]*"),
    "iters": inspected("iters", r"\+[^\n]*`kept`[^\n(]*"),
    "boundmethod": lambda folder: " ".join(
        cli(
            folder, "what-if", str(recorded(folder, "boundmethod")), "--batch-size", "64"
        ).stdout.split()
    )[:160],
    "arrays_device": inspected("arrays_device", r"[^\n]*data set[^\n]*"),
    "tf14_conv.log": log("tf14_conv"),
    "tf18_adam.log": log("tf18_adam"),
    "tf08_test_set.log": log("tf08_test_set"),
    "tf26_dst_tensor.log": log("tf26_dst_tensor"),
    "tf010_proto.log": log("tf010_proto"),
}
"""Beginning of a row to what runs its program in an empty directory and says what the tool says."""


def told(now: Callable[[pathlib.Path], str]) -> str:
    """The last cell of a row."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return now(folder).replace("|", "\\|")
    except Exception as error:  # what went wrong belongs in the row
        return f"**failed: {type(error).__name__}: {error}**".replace("|", "\\|")
    finally:
        shutil.rmtree(folder)


def arguments(usage: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="into the page")
    parser.add_argument("names", nargs="*", help="beginnings of rows' names")
    return parser.parse_args()


def main() -> None:
    options = arguments(__doc__)
    head, title, table = PAGE.read_text(encoding="utf-8").partition(TITLE)
    rows = table.splitlines()
    for at, row in enumerate(rows):
        name = row.split("`")[1] if row.startswith("| `") else ""
        if name and (not options.names or name.startswith(tuple(options.names))):
            rows[at] = f"{row.rpartition(' | ')[0]} | {told(CASES[name])} |"
            print(rows[at], flush=True)
    if options.write:
        PAGE.write_text(head + title + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

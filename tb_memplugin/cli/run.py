"""``tb-memplugin run``: runs a program as ``python FILE …`` or ``python -m MODULE …`` would, and
records its trainings.

Until the program runs, only the standard library is imported: it may set what NumPy or TensorFlow
read at their import.
"""

import argparse
import builtins
import contextlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import subprocess
import sys
import threading
import time
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tb_memplugin.environment import is_unrecorded, why_unrecorded, without_own_frames

if TYPE_CHECKING:
    from tb_memplugin.recorder.automatic import AutomaticRecording

USAGE_ERROR = 2
DEFAULT_LOGDIR = "runs"
NOTHING = (
    "Nothing was recorded: the program called no `fit`, `evaluate`, `predict` or "
    "`train_on_batch` of a Keras model, and no `tf.function` that takes gradients and updates "
    "variables.\n"
    "A loop that only calls a model, or runs a `tf.compat.v1.Session`, names its steps: "
    '`recorder = tb_memplugin.MemoryRecorder("runs/exp1")` before it, '
    '`with recorder.step(n, phase="predict"):` around each call n, without the phase if it trains, '
    "`recorder.close()` after it."
)
_DESCRIPTION = (
    "Runs a Python program and records the memory of every fit, evaluate and predict of Keras, "
    "of train_on_batch, and of custom loops that call a tf.function which takes gradients and "
    "updates variables. The program needs no change. At its end, the summary of `tb-memplugin "
    "inspect` is printed on standard error."
)
_EPILOG = """\
examples:
  tb-memplugin run train.py --epochs 3
  tb-memplugin run --logdir runs --run batch_64 train.py --batch 64
  tb-memplugin run -m mypackage.train

exit codes:
  2  wrong options, or a program that cannot be read
  otherwise that of the program

With TB_MEMPLUGIN=0, or with Keras on another backend than tensorflow or jax, the
program runs and nothing is recorded."""


class _Parser(argparse.ArgumentParser):
    """With errors as of the other commands, whose parser imports too much for a start before the
    program's."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


_SWITCHES = {
    "keep-profile": "keep the profile of each traced step",
    "no-source-lines": "store no lines of code that call layers",
    "scalars": "also write peaks as scalars for TensorBoard",
    "no-summary": "print nothing at the end",
    "no-probe": "do not measure what fits after memory ran out",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "tb-memplugin run [options] FILE|-m MODULE [ARGUMENT ...]"
    for option, unit, kind, default, text in (
        (
            "logdir",
            "DIR",
            str,
            DEFAULT_LOGDIR,
            f"directory of the runs (default: {DEFAULT_LOGDIR})",
        ),
        ("run", "R", _name, None, "name of the run (default: name of the program, date and time)"),
        ("overhead", "SHARE", _share, 0.005, "share of run time that tracing may cost"),
        ("trace-steps", "S,S", _steps, None, "trace exactly these training steps instead"),
    ):
        parser.add_argument(f"--{option}", metavar=unit, type=kind, default=default, help=text)
    parser.add_argument(
        "--device",
        metavar="D",
        action="append",
        help="only this device, e.g. GPU:0; can be repeated",
    )
    for name, text in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the program is a module, as of python -m"
    )
    parser.add_argument("program", metavar="FILE|MODULE", help="the program")
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="its arguments"
    )


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the program; ends with its exception or exit code."""
    parser = _Parser(prog="tb-memplugin run", allow_abbrev=False)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        if not options.is_module and not os.path.isdir(options.program):
            open(options.program, "rb").close()
    except OSError as error:
        print(
            f"tb-memplugin: can't open file {options.program!r}: {error.strerror}", file=sys.stderr
        )
        sys.exit(USAGE_ERROR)
    recording = None if is_unrecorded(on_jax=True) else _recording(options)
    watcher = None if recording is None or options.no_summary else _watcher(options, recording.run)
    process = os.getpid()
    ended: BaseException | None = None
    try:
        (run_module if options.is_module else run_file)(options.program, options.arguments)
    except BaseException as error:
        ended = error
    if ended is not None and not isinstance(ended, SystemExit):
        # here, where no exception is being handled: a hook of the program's may raise
        show_exception(ended)
    if os.getpid() == process and recording is not None:  # else a child that the program forked
        with contextlib.suppress(KeyboardInterrupt):
            # waits as the interpreter does when its main thread ends
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        try:  # a failure of this changes nothing about how the program ended
            recording.close()
            if not options.no_summary and (recording.names or not is_unrecorded(on_jax=True)):
                sys.stdout.flush()
                text = ending(
                    recording.log_dir, options.logdir, recording.names, list(recording.notes())
                )
                print(text, file=sys.stderr, flush=True)
            failed = None if options.no_summary or options.no_probe else recording.fatal_run()
            if failed is not None and isinstance(ended, Exception) and not why_unrecorded():
                from tb_memplugin.training import print_what_fits

                print_what_fits(ended, failed)
        except KeyboardInterrupt:
            pass
        except Exception as error:
            print(f"tb-memplugin: no summary: {type(error).__name__}: {error}", file=sys.stderr)
        if watcher is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                watcher.communicate(b"ended\n", timeout=1)
    if ended is None:
        sys.exit(0)
    if not isinstance(ended, SystemExit):
        # printed above; the interpreter still decides how the process ends
        sys.excepthook = lambda *_: None
    raise ended


def _recording(options: argparse.Namespace) -> "AutomaticRecording":
    from tb_memplugin.recorder.automatic import AutomaticRecording, Wrapping

    stem = (
        options.program
        if options.is_module
        else os.path.splitext(os.path.basename(options.program.rstrip("/")))[0]
    )
    name = options.run or f"{stem or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    settings = {
        one: getattr(options, one) for one in ("overhead", "trace_steps", "keep_profile", "scalars")
    }
    settings |= {"devices": options.device, "source_lines": not options.no_source_lines}
    recording = AutomaticRecording(options.logdir, name, settings)
    Wrapping(recording).install()
    return recording


_WATCHER = """\
read -r ended || [ ! -d "$1" ] || echo "
The program was killed, or ended by os._exit. What was recorded: tb-memplugin inspect $1" >&2
"""


def _watcher(options: argparse.Namespace, run: str) -> "subprocess.Popen[bytes] | None":
    """A shell that says where the run is if this process ends without a word, as when it is
    killed."""
    directory = f"{options.logdir.rstrip('/')}/{run}"
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "sh", directory],
            stdin=pipe,
            stdout=none,
            start_new_session=True,
        )
    except OSError:
        return None


def _name(text: str) -> str:
    if not text or text.strip("./\\") != text or "/" in text or "\\" in text:
        raise argparse.ArgumentTypeError(
            f"the name of a run is a plain directory name. Received: {text!r}"
        )
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(
            f"overhead is a share from 0 (no tracing) to 1. Received: {text!r}"
        )
    return share


def _steps(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 15 for part in parts):
        raise argparse.ArgumentTypeError(f"steps are integers such as 10,500. Received: {text!r}")
    return [int(part) for part in parts]


def ending(logdir: str, given: str, names: Sequence[str], notes: Sequence[str]) -> str:
    """What was not recorded, then the runs and the next commands, as ``tb-memplugin inspect``
    prints them.

    `given` is the directory as the user wrote it."""
    from tb_memplugin.cli.runs import summary
    from tb_memplugin.export import Runs

    if not names:
        return "\n" + "\n\n".join(notes or [NOTHING])
    loaded = Runs(logdir)
    written = {name: loaded[name] for name in names if name in loaded}
    parts = [*(f"{name}: nothing was written" for name in names if name not in written), *notes]
    return "\n" + "\n\n".join([*parts, *([summary(loaded, written, given)] if written else [])])


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a script, or a directory or zip file with a ``__main__.py``. `sys.argv`, ``sys.path[0]``
    and the module ``__main__`` are those of ``python path arguments…``, for good: threads and
    handlers that outlive it need them too.
    """
    sys.argv[:] = [path, *arguments]
    if os.path.isdir(path) or pkgutil.get_importer(path) is not None:
        _new_main(path)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]  # what the interpreter calls, too
        return
    absolute = os.path.abspath(path)
    with io.open_code(absolute) as file:
        code: Any = pkgutil.read_code(file)  # of a .pyc file
    if code is None:
        with io.open_code(absolute) as file:
            source = file.read()
    main = _new_main(os.path.dirname(os.path.realpath(path)))
    main.__file__, main.__cached__ = absolute, None  # type: ignore[attr-defined]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", absolute)
    if code is None:
        code = compile(source, absolute, "exec", dont_inherit=True)
    exec(code, vars(main))


def run_module(name: str, arguments: Sequence[str]) -> None:
    sys.argv[:] = ["-m", *arguments]
    _new_main(os.getcwd())
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def show_exception(error: BaseException) -> None:
    """Print an exception that ends the program as the interpreter does, without frames of this
    package."""
    _strip(error, set())
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error  # type: ignore[attr-defined, unused-ignore]  # since Python 3.12
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as failure:
        print("Error in sys.excepthook:", file=sys.stderr)
        _strip(failure, set())
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def _new_main(search_first: str) -> types.ModuleType:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = search_first
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _strip(error: BaseException | None, seen: set[int]) -> None:
    """Remove the frames of this package from an exception and its causes."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = without_own_frames(error.__traceback__)
        _strip(error.__cause__, seen)
        error = error.__context__

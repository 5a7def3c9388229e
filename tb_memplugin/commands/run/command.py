"""``tb-memplugin run``: runs a program and records what it trains.

Until the program runs, only the standard library is imported: it may set what NumPy or TensorFlow read at their import.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tb_memplugin.commands.run import program
from tb_memplugin.switch import is_off

if TYPE_CHECKING:
    from tb_memplugin.recorder.automatic.recording import AutomaticRecording

USAGE_ERROR = 2
DEFAULT_LOGDIR = "runs"
_DESCRIPTION = (
    "Runs a Python program and records the memory of every fit, evaluate and predict of Keras, of train_on_batch, and "
    "of custom loops that call a tf.function which takes gradients and updates variables. The program needs no change. "
    "At its end, what `tb-memplugin inspect` says of its runs is printed on standard error."
)
_EPILOG = """\
examples:
  tb-memplugin run train.py --epochs 3
  tb-memplugin run --logdir runs --run bigger_batch train.py --batch 64
  tb-memplugin run -m mypackage.train

exit codes:
  2  wrong options, or a program that cannot be read
  otherwise that of the program

With TB_MEMPLUGIN=0 the program runs and nothing is recorded."""


class _Parser(argparse.ArgumentParser):
    """With errors as of the other commands, whose parser imports too much for a start before the program's."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command, and set it as the parser's `command`."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "tb-memplugin run [options] FILE|-m MODULE [ARGUMENT ...]"
    parser.add_argument(
        "--logdir", metavar="DIR", default=DEFAULT_LOGDIR, help=f"directory of the runs (default: {DEFAULT_LOGDIR})"
    )
    parser.add_argument(
        "--run", metavar="R", type=_name, help="name of the run (default: name of the program, date and time)"
    )
    parser.add_argument(
        "--overhead", metavar="SHARE", type=_share, default=0.005, help="share of run time that tracing may cost"
    )
    parser.add_argument("--trace-steps", metavar="S,S", type=_steps, help="trace exactly these training steps instead")
    parser.add_argument("--device", metavar="D", action="append", help="only this device, e.g. GPU:0; can be repeated")
    parser.add_argument("--keep-profile", action="store_true", help="keep the profile of each traced step")
    parser.add_argument("--no-source-lines", action="store_true", help="store no lines of code that call layers")
    parser.add_argument("--scalars", action="store_true", help="also write peaks as scalars for TensorBoard")
    parser.add_argument("--no-summary", action="store_true", help="print nothing at the end")
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module, as of python -m")
    parser.add_argument("program", metavar="FILE|MODULE", help="the program")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(command=run)


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command with these arguments; ends as the program ends."""
    parser = _Parser(prog="tb-memplugin run", allow_abbrev=False)
    add_arguments(parser)
    run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> NoReturn:
    """Run the program; ends with its exception or exit code."""
    if not options.is_module:
        _check_readable(options.program)
    recording = None if is_off() else _recording(options)
    process = os.getpid()
    ended: BaseException | None = None
    try:
        if options.is_module:
            program.run_module(options.program, options.arguments)
        else:
            program.run_file(options.program, options.arguments)
    except BaseException as error:
        ended = error
    if ended is not None and not isinstance(ended, SystemExit):
        program.show_exception(ended)  # here, where no exception is being handled: a hook of the program's may raise
    if os.getpid() == process and recording is not None:  # else a child that the program forked
        program.wait_for_threads()
        _finish(recording, options.logdir, quiet=options.no_summary)
    if ended is None:
        sys.exit(0)
    if not isinstance(ended, SystemExit):
        sys.excepthook = _print_nothing  # the interpreter still decides how the process ends
    raise ended


def _recording(options: argparse.Namespace) -> "AutomaticRecording":
    from tb_memplugin.recorder.automatic.recording import AutomaticRecording
    from tb_memplugin.recorder.automatic.wrapping import Wrapping

    stem = options.program if options.is_module else os.path.splitext(os.path.basename(options.program.rstrip("/")))[0]
    name = options.run or f"{stem or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    recording = AutomaticRecording(
        options.logdir,
        name,
        {
            "overhead": options.overhead,
            "trace_steps": options.trace_steps,
            "devices": options.device,
            "keep_profile": options.keep_profile,
            "source_lines": not options.no_source_lines,
            "scalars": options.scalars,
        },
    )
    Wrapping(recording).install()
    return recording


def _check_readable(path: str) -> None:
    try:
        if not os.path.isdir(path):
            with open(path, "rb"):
                pass
    except OSError as error:
        print(f"tb-memplugin: can't open file {path!r}: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _finish(recording: "AutomaticRecording", given: str, quiet: bool) -> None:
    """Write the runs and print them; a failure of this changes nothing about how the program ended."""
    try:
        recording.close()
        if not quiet:
            from tb_memplugin.commands.run.ending import ending

            sys.stdout.flush()
            text = ending(recording.log_dir, given, recording.names, list(recording.notes()))
            print(text, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        print(f"tb-memplugin: no summary: {type(error).__name__}: {error}", file=sys.stderr)


def _print_nothing(*_: Any) -> None:
    """The exception was printed."""


def _name(text: str) -> str:
    if not text or text.strip("./\\") != text or "/" in text or "\\" in text:
        raise argparse.ArgumentTypeError(f"the name of a run is a plain directory name. Received: {text!r}")
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"overhead is a share from 0 (no tracing) to 1. Received: {text!r}")
    return share


def _steps(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 15 for part in parts):
        raise argparse.ArgumentTypeError(f"steps are integers such as 10,500. Received: {text!r}")
    return [int(part) for part in parts]

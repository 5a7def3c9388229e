"""The parser of the command line: help with examples and exit codes, errors in one line that
suggest what was meant."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import clean, did_you_mean, unknown_name

USER_ERROR = 2  # exit code of wrong usage and of errors of the user
EXIT_CODES = {0: "success", USER_ERROR: "an error, in one line on standard error"}
FORMAT = 1  # version of the printed JSON objects, raised when the meaning of a field changes
LOGDIR = "runs"  # where runs are recorded and read if nothing else is said


def default_logdir() -> str:
    if not os.path.isdir(LOGDIR):
        raise NotFoundError(
            f"no directory {LOGDIR} here. Pass the directory of the runs, as for tensorboard "
            "--logdir"
        )
    return LOGDIR


def print_json(fields: Mapping[str, Any]) -> None:
    print(json.dumps({"format": FORMAT, **fields}, allow_nan=False))


class CommandParser(argparse.ArgumentParser):
    def __init__(self, **named: Any) -> None:
        super().__init__(formatter_class=_Help, **named)

    def describe(
        self,
        description: str,
        *,
        examples: Sequence[str],
        exit_codes: Mapping[int, str] = EXIT_CODES,
        more: str = "",
    ) -> None:
        """Set what the help says before and after the arguments."""
        self.description = description
        said = ["examples:", *(f"  {line}" for line in examples)]
        codes = ["exit codes:", *(f"  {code}  {exit_codes[code]}" for code in sorted(exit_codes))]
        parts = more, "\n".join(said), "\n".join(codes)
        self.epilog = "\n\n".join(filter(None, parts))

    def option(self, usage: str, text: str, **settings: Any) -> None:
        """Add an option by its usage, such as ``--run R``, with `text` as its help; one without a
        value and settings is a switch."""
        name, _, unit = usage.partition(" ")
        if unit:
            settings["metavar"] = unit
        self.add_argument(name, help=text, **(settings or {"action": "store_true"}))

    def add_logdir(self, text: str = "log directory, as for tensorboard --logdir") -> None:
        """Add the directory of runs; None stands for `default_logdir`, which only a command that
        runs needs."""
        self.add_argument("logdir", metavar="LOGDIR", nargs="?", help=f"{text} (default: {LOGDIR})")

    def add_format(self, text: str, *others: str) -> None:
        """Add ``--format``, with `text` as its help; others than ``table`` and ``json`` are
        named."""
        self.option("--format", text, choices=("table", "json", *others), default="table")

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"{self.prog}: {clean(message)} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in the base class, but unknown arguments are an error of the command that got them."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = next((one.partition("=")[0] for one in unknown if one.startswith("-")), None)
            if option is None:
                self.error(f"unexpected argument {unknown[0]!r:.80}")
            names = [name for name in self._option_string_actions if name.startswith("--")]
            hint = did_you_mean(option, names)
            self.error(f"unknown option {option:.80}" + (f"; {hint}" if hint else ""))
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        is_command = isinstance(action, argparse._SubParsersAction)
        kind = "unknown command" if is_command else "invalid choice"
        said = unknown_name(kind, str(value), list(map(str, action.choices)), offer="choose from")
        raise argparse.ArgumentError(None if is_command else action, said)


class _Help(argparse.HelpFormatter):
    """Wraps paragraphs; lines that are indented, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for part in text.split("\n\n"):
            kept = any(line.startswith(" ") for line in part.split("\n"))
            lines = [f"{indent}{line}" for line in part.split("\n")]
            parts.append("\n".join(lines) if kept else super()._fill_text(part, width, indent))
        return "\n\n".join(parts)

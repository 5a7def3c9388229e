"""Scripts with which bash, zsh and fish complete the command line. They are made from its parser."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tb_memplugin.commands.command_parser import CommandParser

_PATHS = ("LOGDIR", "DIR", "PATH", "FILE.html", "FILE|MODULE")
"""What stands for a path in the help."""


class _Option(NamedTuple):
    names: Sequence[str]
    help: str
    takes_value: bool
    choices: Sequence[str]
    is_path: bool
    repeats: bool


class _Command(NamedTuple):
    name: str
    help: str
    options: Sequence[_Option]
    arguments: Sequence[_Option]  # without names


def completion_script(parser: CommandParser, shell: str) -> str:
    """The script for one of `SHELLS`, which completes commands, options, their choices, and paths."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    commands = [_command(name, helps.get(name, ""), one) for name, one in subparsers.choices.items()]
    return "\n".join(_SCRIPTS[shell](parser.prog, commands))


def _command(name: str, description: str, parser: argparse.ArgumentParser) -> _Command:
    options = [_option(action) for action in parser._actions]
    named, arguments = [one for one in options if one.names], [one for one in options if not one.names]
    return _Command(name, description, named, arguments)


def _option(action: argparse.Action) -> _Option:
    return _Option(
        names=action.option_strings,
        # As argparse expands it; the first words are enough.
        help=re.split(r"[;(]|: ", (action.help or "").replace("%%", "%"))[0].strip(),
        takes_value=action.nargs != 0,
        choices=[str(choice) for choice in action.choices or ()],
        is_path=str(action.metavar) in _PATHS,
        repeats=isinstance(action, argparse._AppendAction) or action.nargs == "+",
    )


def _bash(prog: str, commands: Sequence[_Command]) -> Iterator[str]:
    function = f"_{prog.replace('-', '_')}"
    names = " ".join(one.name for one in commands)
    yield f"# bash completion of {prog}"
    yield f"{function}() {{"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" paths=""'
    yield "  COMPREPLY=()"
    yield "  if (( COMP_CWORD == 1 )); then"
    yield f'    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word")); return'
    yield "  fi"
    yield '  case "${COMP_WORDS[1]} $before" in'
    for command in commands:
        for option in command.options:
            patterns = "|".join(f'"{command.name} {name}"' for name in option.names)
            if option.takes_value:
                found = "paths=1" if option.is_path else f'words="{" ".join(option.choices)}"'
                yield f"    {patterns}) {found} ;;"
    yield '    *) case "${COMP_WORDS[1]}" in'
    for command in commands:
        words = [name for option in command.options for name in option.names]
        choices = [choice for one in command.arguments for choice in one.choices]
        paths = " paths=1" if any(one.is_path for one in command.arguments) else ""
        yield f'      {command.name}) words="{" ".join([*choices, *words])}"{paths} ;;'
    yield "      esac ;;"
    yield "  esac"
    yield "  if [[ $paths && $word != -* ]]; then"
    yield "    compopt -o filenames 2>/dev/null"
    yield "    local IFS=$'\\n'"  # a name may contain spaces
    yield '    COMPREPLY=($(compgen -f -- "$word")); return'
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield f"complete -F {function} {prog}"


def _zsh(prog: str, commands: Sequence[_Command]) -> Iterator[str]:
    function = f"_{prog.replace('-', '_')}"
    yield f"#compdef {prog}"
    yield f"{function}() {{"
    yield "  local curcontext=$curcontext state line"
    yield "  local -a commands"
    described = (shlex.quote(f"{one.name}:{one.help}") for one in commands)
    yield f"  commands=({' '.join(described)})"
    yield "  _arguments -C '--help[show the help]' '--version[show the version]' '1: :->command' '*:: :->arguments'"
    yield "  case $state in"
    yield "    command) _describe command commands ;;"
    yield "    arguments) case $words[1] in"
    for command in commands:
        specs = [spec for option in [*command.options, *command.arguments] for spec in _zsh_specs(option)]
        yield f"      {command.name}) _arguments {' '.join(specs)} ;;"
    yield "    esac ;;"
    yield "  esac"
    yield "}"
    # Autoloaded from $fpath the file is the function's body; sourced, it must register the function.
    yield f'if [[ $funcstack[1] == _{prog} ]]; then {function} "$@"; else compdef {function} {prog}; fi'


def _zsh_specs(option: _Option) -> Iterator[str]:
    value = ""
    if option.takes_value:
        value = ":value:" + ("_files" if option.is_path else f"({' '.join(option.choices)})" if option.choices else " ")
    repeated = "*" if option.repeats else ""
    if not option.names:
        yield shlex.quote(f"{repeated}{value}")
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    for name in option.names:
        yield shlex.quote(f"{repeated}{name}[{text}]{value}")


def _fish(prog: str, commands: Sequence[_Command]) -> Iterator[str]:
    yield f"# fish completion of {prog}"
    yield f"complete -c {prog} -f"
    names = " ".join(one.name for one in commands)
    first = f"not __fish_seen_subcommand_from {names}"
    for command in commands:
        yield f"complete -c {prog} -n {_quoted(first)} -a {command.name} -d {_quoted(command.help)}"
    for command in commands:
        seen = _quoted(f"__fish_seen_subcommand_from {command.name}")
        for option in command.options:
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = ""
            if option.takes_value:
                value = " -r -F" if option.is_path else f" -x -a {_quoted(' '.join(option.choices))}"
            yield f"complete -c {prog} -n {seen} {flags}{value} -d {_quoted(option.help)}"
        for argument in command.arguments:
            value = "-F" if argument.is_path else f"-a {_quoted(' '.join(argument.choices))}"
            yield f"complete -c {prog} -n {seen} {value}"


def _quoted(text: str) -> str:
    """A string of fish, in which only the quotation mark and the backslash are special."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[str, Sequence[_Command]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
SHELLS = tuple(_SCRIPTS)

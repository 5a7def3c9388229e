"""Writes docs/scenarios.md from measured figures. Every measured number on the page comes from them."""

import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from scenario.declare import Advice, Comparison, Expected, Figures, Scenario, Verdict, judged
from tb_memplugin.model import CATEGORIES
from tb_memplugin.model.units import format_bytes

LOGDIR = pathlib.Path("runs/scenarios")
WORDS = {"true": "True", "true only if": "True only if", "not true": "Not true"}
HEAD = """# Advice on memory, measured

Each section takes advice that is often given on TensorFlow's memory, and compares trainings with and without it. The
figures are the allocator's bytes at the peak of a traced step, by category, as the recorder stored them. *Expected*
is arithmetic from the model alone: parameters, shapes and dtypes. Tests repeat every training and hold its figures
against that arithmetic.

`make scenarios` runs all scenarios and writes this page from their recordings. Each also runs alone, and each is a
file to copy from: `demo/scenarios`. On a CPU they use the allocator class that GPUs use (BFC)."""


def page(scenarios: Sequence[Scenario], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page.

    Args:
        scenarios: In order.
        results: By device (``CPU`` or a GPU's name), then by scenario: what `run.measured` returned.
    """
    lines = [HEAD, *_overview(scenarios, results)]
    for scenario in scenarios:
        of_scenario = {device: found[scenario.name] for device, found in results.items() if scenario.name in found}
        lines += ["", *section(scenario, of_scenario)]
    return "\n".join(lines) + "\n"


def section(scenario: Scenario, results: Mapping[str, Any], logdir: pathlib.Path = LOGDIR) -> list[str]:
    """The lines of one scenario; `results` by device."""
    file = f"demo/scenarios/{scenario.name}.py"
    lines = [f"## {scenario.number}. {scenario.title}", "", scenario.description.split("\n\n")[0].strip(), ""]
    lines += ["```sh", f"python {file} --logdir {logdir}", f"tb-memplugin view {logdir}", "```"]
    for result in results.values():
        lines += [
            "",
            f"Measured on {_device(result)} with TensorFlow {result['tensorflow']}, Keras {result['keras']}, "
            f"{result['date']}.",
        ]
        seen: set[tuple[str, str]] = set()
        for advice in scenario.advice:
            lines += ["", *_advice(scenario, advice, result, seen)]
    return lines


def _overview(scenarios: Iterable[Scenario], results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for device, found in results.items():
        yield ""
        yield f"| advice | verdict on {_device({'device': device})} | measured |"
        yield "|---|---|---|"
        for scenario in scenarios:
            if scenario.name not in found:
                continue
            figures = found[scenario.name]["runs"]
            for advice in scenario.advice:
                verdict = judged(advice, figures, device)
                if verdict is None:
                    continue
                changes = "; ".join(_change(one, figures) for one in advice.made_on(device))
                words = f"[{advice.words[0]}](#{_anchor(scenario)})"
                yield f"| {words} | {WORDS[verdict]}{_condition(advice, verdict)} | {changes} |"


def _anchor(scenario: Scenario) -> str:
    text = f"{scenario.number}. {scenario.title}".lower().replace(" ", "-")
    return "".join(letter for letter in text if letter.isalnum() or letter in "-_")


def _condition(advice: Advice, verdict: Verdict) -> str:
    """For "true only if", the condition: up to the end of the first sentence."""
    if advice.verdict != "true only if" or verdict != advice.verdict:
        return ""
    return " " + advice.because.split(". ")[0].rstrip(".")


def _change(one: Comparison, figures: Mapping[str, Figures]) -> str:
    before, after = figures[one.before][one.figure], figures[one.after][one.figure]
    title, size = f"{one.title}: " if one.title else "", _format(one.figure)
    return f"{title}{one.figure.replace('_', ' ')} {size(before)} → {size(after)}"


def _advice(scenario: Scenario, advice: Advice, result: Mapping[str, Any], seen: set[tuple[str, str]]) -> Iterator[str]:
    """`seen`: pairs of runs whose categories stand in a table already."""
    figures = result["runs"]
    yield from (f"> {words}" if at == 0 else f">\n> {words}" for at, words in enumerate(advice.words))
    verdict, comparisons = judged(advice, figures, result["device"]), advice.made_on(result["device"])
    yield ""
    if verdict is None:
        gpus = max(scenario.runs[run].gpus for one in comparisons for run in (one.before, one.after))
        yield f"Not run here: needs {gpus} GPU{'s' if gpus > 1 else ''}." if gpus else "Not run here."
        return
    if verdict == advice.verdict:
        yield f"**{WORDS[verdict]}{'** ' if verdict == 'true only if' else '.** '}{advice.because}"
    else:  # the reasons were written for another device
        words = f"{WORDS[verdict].removesuffix(' only if')}{' in part' if verdict == 'true only if' else ''}"
        yield f"**{words}** here. {'' if result['device'] == 'CPU' else advice.on_gpu}".rstrip()
    for one in comparisons:
        expected = [item for item in one.expected if not item.cpu_only or result["device"] == "CPU"]
        every = (one.before, one.after) not in seen
        seen.add((one.before, one.after))
        yield from _table(scenario, one, expected, figures, every)


def _table(
    scenario: Scenario, one: Comparison, expectations: Sequence[Expected], figures: Mapping[str, Figures], every: bool
) -> Iterator[str]:
    """`every`: whether all categories are shown, not only those that the comparison is about."""
    before, after = figures[one.before], figures[one.after]
    expected = {item.figure: item for item in expectations}
    shown = dict.fromkeys([one.figure, *(["peak"] if "peak" in before.keys() & after.keys() else [])])
    if every and "peak" in before.keys() & after.keys():
        least = 0.005 * max(before.get("peak", 0), after.get("peak", 0))
        shown |= dict.fromkeys(name for name in CATEGORIES if max(before.get(name, 0), after.get(name, 0)) >= least)
    shown |= dict.fromkeys([*expected, *one.show])
    yield ""
    if one.title:
        yield f"{one.title}:"
        yield ""
    yield f"| at the peak | `{one.before}` | `{one.after}` | change | expected |"
    yield "|---|---:|---:|---:|---|"
    for name in shown:
        first, last = before[name], after[name]
        item = expected.get(name)
        text, size = "", _format(name)
        if item is not None:
            sides = " → ".join(size(value) for value in (item.before, item.after))
            about = f" (± {100 * item.within:.0f} %)" if item.within >= 0.005 else ""
            text = f"{sides}{about}: {item.formula}"
        yield f"| {_label(name)} | {size(first)} | {size(last)} | {_signed(last - first, size)} | {text} |"
    if not every or "peak" not in before.keys() & after.keys():
        return
    choices = {"view": "compare", "run": f"{scenario.name}/{one.before}", "other": f"{scenario.name}/{one.after}"}
    yield ""
    yield f"In the tab: <http://localhost:6007/#{urlencode(choices, safe='/')}>"


def _label(name: str) -> str:
    return "saved for backward, end of forward pass" if name == "saved_for_backward" else name.replace("_", " ")


def _format(name: str) -> Callable[[int | None], str]:
    """How a figure is written: a count by its name's end, otherwise bytes."""
    return str if name.endswith(("_steps", "_count")) else format_bytes


def _signed(change: int, size: Callable[[int | None], str]) -> str:
    return f"+{size(change)}" if change > 0 else size(change).replace("-", "−") if change else "0"


def _device(result: Mapping[str, Any]) -> str:
    return "the CPU" if result["device"] == "CPU" else f"one {result['device']}"

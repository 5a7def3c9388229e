"""Writes docs/advice.md and the pages of docs/advice from measured figures. Every measured number
comes from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scenario.declare import Advice, Comparison, Expected, Figures, Scenario, Verdict, judged
from tb_memplugin.schema import CATEGORIES, format_bytes

WORDS = {"true": "True", "true only if": "True only if", "not true": "Not true"}
LEAST_CHANGE = 0.02
"""Categories whose bytes change by less than this share of the larger peak are left out."""
HEAD = """# Advice on memory, measured

Common advice on TensorFlow's memory, tested by training with and without it. Values are bytes at
the peak of a traced step, on the CPU unless stated; a link leads to all values, the reason and the
code. Each training is a script in `demo/scenarios`; `make scenarios` runs them and writes these
pages."""

Results = Mapping[str, Any]
"""What `run.measured` returned, by device (``CPU`` or a GPU's name)."""


def overview(scenarios: Sequence[Scenario], results: Mapping[str, Results]) -> str:
    """The page of all advice.

    Args:
        scenarios: In order.
        results: By device, then by scenario.
    """
    lines = [HEAD, "", f"| advice | {' | '.join(map(_short, results))} | measured |"]
    lines.append("|---" * (len(results) + 2) + "|")
    for scenario in scenarios:
        for advice in scenario.advice:
            verdicts = {
                device: _verdict(scenario, advice, found, device)
                for device, found in results.items()
            }
            if any(verdicts.values()):
                cells = " | ".join(_words(verdicts[device]) for device in results)
                made = next(device for device, verdict in verdicts.items() if verdict)
                changes = _changes(scenario, advice, results[made], made)
                lines.append(
                    f"| [{advice.words[0]}](advice/{scenario.name}.md) | {cells} | {changes} |"
                )
    return "\n".join(lines) + "\n"


def topic(scenario: Scenario, results: Results) -> str:
    """The page of one scenario.

    Args:
        scenario: The scenario.
        results: Its results by device.
    """
    measured = "; ".join(
        f"{_device(result['device'])} with TensorFlow {result['tensorflow']}, Keras "
        f"{result['keras']}, {result['date']}"
        for result in results.values()
    )
    lines = [
        f"# {scenario.title}",
        "",
        scenario.description.split("\n\n")[0].strip(),
        "",
        f"Run `python demo/scenarios/{scenario.name}.py`, then `tb-memplugin view "
        "runs/scenarios` to compare the runs.",
        f"Measured on {measured}.",
    ]
    seen: set[tuple[str, str]] = set()
    for advice in scenario.advice:
        lines += ["", *_advice(scenario, advice, results, seen)]
    return "\n".join(lines) + "\n"


def _verdict(
    scenario: Scenario, advice: Advice, found: Mapping[str, Any], device: str
) -> Verdict | None:
    return judged(advice, found[scenario.name]["runs"], device) if scenario.name in found else None


def _words(verdict: Verdict | None) -> str:
    """A verdict for the table, whose link leads to the condition."""
    return (
        "not run" if verdict is None else "true in part" if verdict == "true only if" else verdict
    )


def _changes(scenario: Scenario, advice: Advice, found: Mapping[str, Any], device: str) -> str:
    figures = found[scenario.name]["runs"]
    # One comparison for each outcome: the page of the scenario has all of them.
    shown: dict[bool, Comparison] = {}
    for one in advice.made_on(device):
        held = one.claim.holds(figures[one.before][one.figure], figures[one.after][one.figure])
        shown.setdefault(held, one)
    changes = "; ".join(_change(one, figures) for one in shown.values())
    return changes if device == "CPU" else f"{changes} ({_short(device)})"


def _change(one: Comparison, figures: Mapping[str, Figures]) -> str:
    before, after = figures[one.before][one.figure], figures[one.after][one.figure]
    title, size = f"{one.title}: " if one.title else "", _format(one.figure)
    return f"{title}{one.figure.replace('_', ' ')} {size(before)} → {size(after)}"


def _advice(
    scenario: Scenario, advice: Advice, results: Results, seen: set[tuple[str, str]]
) -> Iterator[str]:
    """`seen`: pairs of runs whose categories are in a table already."""
    yield f"## {advice.words[0]}"
    for words in advice.words[1:]:
        yield ""
        yield f"Also: {words}"
    for result in results.values():
        yield from _judgement(scenario, advice, result, alone=len(results) == 1)
    comparisons = [
        one
        for one in advice.comparisons
        if any(_made(one, advice, result) for result in results.values())
    ]
    for one in comparisons:
        made = [result for result in results.values() if _made(one, advice, result)]
        every = (one.before, one.after) not in seen
        seen.add((one.before, one.after))
        yield from _table(one, made, every)


def _made(one: Comparison, advice: Advice, result: Mapping[str, Any]) -> bool:
    return (
        one in advice.made_on(result["device"]) and {one.before, one.after} <= result["runs"].keys()
    )


def _judgement(
    scenario: Scenario, advice: Advice, result: Mapping[str, Any], alone: bool
) -> Iterator[str]:
    """The verdict on one device and its reason; nothing if a GPU agrees with the CPU."""
    verdict = judged(advice, result["runs"], result["device"])
    place = "" if alone else f" on {_device(result['device'])}"
    if verdict is None:
        comparisons = advice.made_on(result["device"])
        gpus = (
            max(scenario.runs[run].gpus for one in comparisons for run in (one.before, one.after))
            if comparisons
            else 0
        )
        yield ""
        yield (
            (f"Not run{place}: needs {gpus} GPU{'s' if gpus > 1 else ''}.")
            if gpus
            else f"Not run{place}."
        )
    elif verdict == advice.verdict:
        if result["device"] == "CPU" or alone:
            yield ""
            end = "** " if verdict == "true only if" else ".** "
            yield f"**{WORDS[verdict]}{end}{advice.because}"
    else:  # the reasons were written for another device
        words = WORDS[verdict].removesuffix(" only if")
        words += " in part" if verdict == "true only if" else ""
        yield ""
        yield f"**{words}**{place}. {'' if result['device'] == 'CPU' else advice.on_gpu}".rstrip()


def _table(one: Comparison, made: Sequence[Mapping[str, Any]], every: bool) -> Iterator[str]:
    """`every`: whether changed categories are shown, not only the figures that the comparison is
    about."""
    pairs = [(result["runs"][one.before], result["runs"][one.after]) for result in made]
    expected = {item.figure: item for item in one.expected}
    shown = dict.fromkeys([one.figure])
    if all("peak" in before.keys() & after.keys() for before, after in pairs):
        shown["peak"] = None
        if every:
            shown |= dict.fromkeys(
                name for name in CATEGORIES if any(_changed(name, *pair) for pair in pairs)
            )
    shown |= dict.fromkeys([*expected, *one.show])
    yield ""
    if one.title:
        yield f"{one.title}:"
        yield ""
    heads = [
        f"{_short(result['device'])}: `{name}`"
        for result in made
        for name in (one.before, one.after)
    ]
    yield f"| at the peak | {' | '.join(heads)} | expected |"
    yield f"|---|{'---:|' * len(heads)}---|"
    for name in shown:
        size = _format(name)
        cells = [size(side[name]) if name in side else "–" for pair in pairs for side in pair]
        yield (
            f"| {_label(name)} | {' | '.join(cells)} | "
            f"{_expected(expected.get(name), size, len(made) > 1)} |"
        )


def _changed(name: str, before: Figures, after: Figures) -> bool:
    least = LEAST_CHANGE * max(before["peak"], after["peak"])
    return abs(after.get(name, 0) - before.get(name, 0)) >= least


def _expected(item: Expected | None, size: Callable[[int | None], str], several: bool) -> str:
    """What arithmetic says; the measured values of a comparison equal it within the stated
    share."""
    if item is None:
        return ""
    sides = " → ".join(size(value) for value in (item.before, item.after))
    about = f" (± {100 * item.within:.0f} %)" if item.within >= 0.005 else ""
    return f"{sides}{about}: {item.formula}{', on the CPU' if several and item.cpu_only else ''}"


def _label(name: str) -> str:
    return (
        "saved for backward, end of forward pass"
        if name == "saved_for_backward"
        else name.replace("_", " ")
    )


def _format(name: str) -> Callable[[int | None], str]:
    """How a figure is written: a count by its name's end, otherwise bytes."""
    return str if name.endswith(("_steps", "_count")) else format_bytes


def _device(device: str) -> str:
    return "the CPU" if device == "CPU" else device


def _short(device: str) -> str:
    return device.removeprefix("NVIDIA ")

"""Which quantity each figure of the page and of ``inspect`` is: a table of names, and the figures'
values.

A quantity is a sentence such as "frozen: weights, frozen at the peak of step 120". Figures of one
quantity have one value and one label, wherever they stand.
"""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tb_memplugin.schema import format_bytes, format_figure
from tb_memplugin.schema.text import UNITS

Value = int | float | str
"""Exact bytes, a count or a ratio; or a rounded size such as ``35.9 MiB``."""

COLLECT = """(body) => {
      const name = (element) =>
        element.closest("[data-testid]")?.dataset.testid ??
        element.closest("[aria-label]:not([data-tip])")?.getAttribute("aria-label") ??
        "";
      const found = [
        ...body.querySelectorAll(
          "[data-figure], [data-bytes], [data-value], [data-parameters], " +
            "[data-figures], [data-from], [data-fact], [data-tip]",
        ),
      ];
      return found
        .filter((one) => one.checkVisibility())
        .map((one) => ({
          ...one.dataset,
          place: name(one),
          kind: String(one.className.baseVal ?? one.className),
          row: one.parentElement.closest("[data-from]") ? "versus" : "",
          layer: one.closest("[data-layer]")?.dataset.layer,
          group: one.closest("[data-group]")?.dataset.group,
          totals: one.closest("tr.totals") !== null,
          rounds: [...one.querySelectorAll("button")].some(
            (button) => button.textContent.trim() === "rounding",
          ),
          bar: one.closest("[data-bar]")?.dataset.bar,
          label:
            (
              one.querySelector("th, dt") ?? one.querySelector(":scope > .label")
            )?.textContent.trim() ?? "",
          shown: (
            one.querySelector(".figure") ??
            one.querySelector("dd") ??
            one
          ).textContent.trim(),
          unit:
            one.closest("aside, .picture")?.querySelector("button.unit")?.textContent.trim() ?? "",
        }));
    }"""
"""Every visible element of a document that has a figure or explains one, with its names and its
exact values."""

CATEGORY = (
    r"(?P<c>weights|optimizer_state|other_state|held_tensors|inputs|activations|activation_gradients"
    r"|weight_gradients|workspace|communication|rounding|unattributed)"
)
SLOTS = "(?P<c>optimizer_state):(?P<o>current|earlier)"
GROUP = CATEGORY + r"(?::(?P<t>frozen|trainable|true|false))?"


@dataclasses.dataclass(frozen=True)
class Rule:
    """The figures that are one quantity.

    Attributes:
        place: Pattern of the part of the page.
        name: Pattern of the figure's name; its groups stand in `quantity` and in `label`.
        quantity: Of the run, the step, the layer and so on of its place.
        label: Its only label; None where the figure is a part of a drawing or a list and has none
            of its own.
    """

    place: str
    name: str
    quantity: str
    label: str | None = None


PEAK = "{run}: bytes in use at the peak of step {step}"
AT_PEAK = "{run}: {c} at the peak of step {step}"
OF_SIDE = "{run}: {c} of {s} at the peak of step {step}"
OF_TENSOR = "{run}: {n} bytes of tensor {tensor} of step {traced}"
SIDE_PEAK = "{siderun}: bytes in use at the peak of step {sidestep}"
POOL = "{run}: {name} at the {instant} of step {step}"
FAILURE = "{run}: {name} at the failure"
OF_LAYER = "{run}: {c} of layer {layer} at the peak of step {traced}"
LAYER = "{run}: layer {layer} at the peak of step {traced}"
STEPS = "breakdown|sides"
DEVICE = "device-memory|Device memory"
ASKED = "(?P<p>requested_bytes|in_use_bytes|free_bytes|largest_free_bytes|pool_bytes)"

RULES = (
    # The panel of a step: Overview, Frozen.
    Rule("breakdown", GROUP, AT_PEAK, "{c}"),
    Rule(STEPS, "peak_bytes", PEAK, "measured peak"),
    Rule(
        STEPS, "in_use_bytes", "{run}: bytes in use at the end of step {step}", "in use at step end"
    ),
    Rule(
        f"{STEPS}|pool|oom-categories|answers",
        r"(?:\w+:)?capacity_bytes",
        "{run}: capacity",
        "capacity",
    ),
    Rule(STEPS, "headroom", "{run}: headroom at step {step}", "{headroom}"),
    Rule(
        f"{STEPS}|host-memory", "host_resident_bytes", "{run}: host RSS at step {step}", "host RSS"
    ),
    Rule(
        "Figures of one step",
        "run:(?P<other>.+)",
        "{other}: bytes in use at the peak of step {step}",
        "{other}",
    ),
    Rule(
        "Figures of one step",
        "(?P<z>persistent|saved):(?P<l>.+)",
        "{run}: {z} memory of layer {l} at step {traced}",
    ),
    Rule("held-tensors", "held_tensors:(?P<h>.+)", "{run}: held tensors {h} at step {traced}"),
    Rule(
        "sides",
        "(?P<s>frozen|trainable)",
        "{run}: {s} layers at the peak of step {step}",
        "{S} layers",
    ),
    Rule(
        "sides", "other", "{run}: memory without a known layer at the peak of step {step}", "Other"
    ),
    Rule("sides", "(?P<t>frozen|trainable):(?P<c>weights)", AT_PEAK, "{plain}"),
    Rule("sides", f"(?P<s>frozen|trainable|other):{CATEGORY}", OF_SIDE, "{plain}"),
    # Layers.
    Rule("layers", "parameters", "{run}: parameters of layer {layer}"),
    Rule("layers|output", "output_bytes", "{run}: output of layer {layer}"),
    Rule("Figures of one step", "total:(?P<l>.+)", LAYER),
    Rule(
        "layers", "(?P<z>persistent|saved)", "{run}: {z} memory of layer {layer} at step {traced}"
    ),
    Rule("Zoom of the icicle", "in_use_bytes", "{run}: bytes in use at the peak of step {traced}"),
    Rule(
        "Zoom of the icicle", "known_bytes", "{run}: weights and optimizer state of the layer table"
    ),
    Rule("icicle", "total", LAYER),
    Rule("icicle", CATEGORY, OF_LAYER),
    Rule("icicle", "(?P<n>(?:within|tensor):.*)", "{run}: cell {n} of the icicle at step {traced}"),
    Rule("layers", "total", LAYER),
    Rule(
        "layers", "others", "{run}: other categories of layer {layer} at the peak of step {traced}"
    ),
    Rule("layers", CATEGORY, OF_LAYER),
    Rule("layer-figures", CATEGORY, OF_LAYER, "{c}"),
    Rule("layer-figures", "total", LAYER, "total"),
    # A step's timeline, which is shown at its peak.
    Rule("timeline-breakdown", GROUP, AT_PEAK, "{c}"),
    Rule("timeline-breakdown", "in_use_bytes", PEAK, "in use"),
    Rule("timeline-breakdown", "peak_bytes", PEAK, "measured peak"),
    Rule("live", "tensor:(?P<n>.+)", "{run}: requested bytes of tensor {n} of step {traced}"),
    Rule("live", "rounding:(?P<n>.+)", "{run}: rounding bytes of tensor {n} of step {traced}"),
    Rule("tensor", "(?P<n>allocated|requested|rounding)", OF_TENSOR, "{n}"),
    Rule(
        "demand", "(?P<d>demand|rounding|unsplit)_bytes", "{run}: {d} of the highest replayed peak"
    ),
    # Host memory.
    Rule(
        "host-memory",
        "(?P<h>pinned_pool|tf_data|cpu|other)_bytes",
        "{run}: {h} of host memory up to step {step}",
    ),
    Rule(
        "host-memory",
        "parts_sum",
        "{run}: sum of the parts of host memory up to step {step}",
        "sum of the parts",
    ),
    # The pool.
    Rule(
        "pool",
        "allocated_bytes",
        "{run}: bytes in use at the {instant} of step {step}",
        "allocated",
    ),
    Rule("pool", "(?P<p>pool_bytes|free_bytes)", POOL, "{poolword}"),
    Rule(
        "pool",
        "(?P<p>free_largest|free_other|unreserved|fragmentation|utilisation)",
        POOL,
        "{poolword}",
    ),
    Rule(
        "pool",
        "rounding_bytes",
        "{run}: measured rounding at the peak of step {step}",
        "measured rounding",
    ),
    Rule(DEVICE, f"in_use:{GROUP}", "{run}: {c} at the peak of step {traced}"),
    Rule(
        DEVICE,
        "(?P<p>free_largest|free_other|unreserved)",
        "{run}: {name} at the peak of step {traced}",
    ),
    Rule(DEVICE, "headroom", "{run}: headroom at step {traced}"),
    # A memory map, of a step or of a failure.
    Rule("map-legend", GROUP, "{run}: {c} {mapat}"),
    Rule("map-legend", "(?P<p>free)", "{run}: {name} {mapat}"),
    Rule("bins", r"(?P<n>\d+)", "{run}: free chunks from {n} B {mapat}"),
    Rule(
        "blocking-chunks",
        r"joined:(?P<n>\d+)",
        "{run}: free chunk without a chunk of owner {n} {mapat}",
    ),
    # A failure.
    Rule("oom-figures|oom-categories", ASKED, FAILURE, "{poolword}"),
    Rule("oom|fixes", "(?P<p>in_use_bytes|free_largest|free_other)", FAILURE),
    Rule("oom-categories|fixes", CATEGORY, "{run}: {c} at the failure", "{c}"),
    Rule("oom-layers", "layer:(?P<l>.*)", "{run}: layer {l} at the failure", "{short}"),
    # Compare: A and B, their differences.
    Rule(
        "versus", f"(?P<side>[AB]):{GROUP}", "{siderun}: {c} at the peak of step {sidestep}", "{c}"
    ),
    Rule(
        "versus",
        f"(?P<side>[AB]):{SLOTS}",
        "{siderun}: slots, {o}, at the peak of step {sidestep}",
        "optimizer, {o}",
    ),
    Rule("versus", "(?P<side>[AB]):peak_bytes", SIDE_PEAK, "measured peak"),
    Rule(
        "deltas",
        "(?P<side>[AB]):layer",
        "{siderun}: layer {layer} at the peak of step {sidetraced}",
    ),
    Rule("deltas", "delta", "{run}: difference of layer {layer} to {b}"),
    Rule("waterfall", "peak:(?P<side>[AB])", SIDE_PEAK),
    Rule("waterfall", "others", "{run}: differences below 1 % to {b}"),
    Rule("waterfall", SLOTS, "{run}: difference of slots, {o}, to {b}"),
    Rule("waterfall", GROUP, "{run}: difference of {c} to {b}"),
    # What if: measured and predicted.
    Rule(
        "predicted", f"(?P<side>measured):{GROUP}", "{run}: {c} at the peak of step {whatif}", "{c}"
    ),
    Rule(
        "predicted",
        "(?P<side>measured):total",
        "{run}: bytes in use at the peak of step {whatif}",
        "peak",
    ),
    Rule("predicted", f"predicted:{GROUP}", "{run}: predicted {c}", "{c}"),
    Rule("predicted", "predicted:total", "{run}: predicted peak", "peak"),
    Rule("peak-bars", "measured:" + GROUP, "{run}: {c} at the peak of step {whatif}"),
    Rule("peak-bars", "predicted:" + GROUP, "{run}: predicted {c}"),
    Rule("peak-bars", "predicted:peak_bytes", "{run}: predicted peak"),
    Rule("peak-bars", "(?:plan|smallest):" + GROUP, "{run}: planned {c}"),
    Rule("peak-bars", "(?:plan|smallest):peak_bytes", "{run}: planned peak"),
    Rule("what-if", "peak_bytes", "{run}: predicted peak", "predicted peak"),
    Rule("what-if", "recorded_peak_bytes", "{run}: highest peak", "recorded peak"),
    Rule("what-if", "planned_peak_bytes", "{run}: planned peak", "planned peak"),
    Rule("plan-options", "(?P<n>.*)", "{run}: peak with the change {n}"),
    Rule("plan-dots", "(?P<n>(?:plan|point) .*)", "{run}: {n} of the plan's points"),
    Rule("what-if", "largest_batch_size", "{run}: largest batch size", "largest batch size"),
    # Activations that the script recorded.
    Rule(
        "activations", "layer:(?P<l>.+)", "{run}: recorded activations of layer {l} at step {step}"
    ),
    Rule("activations", "(?P<n>total|others)", "{run}: recorded activations, {n}, at step {step}"),
    # The four answers.
    Rule(
        "answers",
        "fits:peak_bytes",
        "{run}: bytes in use at the peak of step {evidence}",
        "measured peak",
    ),
    Rule("answers", "fits:headroom_bytes", "{run}: headroom at step {evidence}", "headroom"),
    Rule("answers", f"failed:{ASKED}", FAILURE, "{poolword}"),
    Rule("answers", f"fragmented:{ASKED}", "{run}: {name} {evidencepool}", "{poolword}"),
    Rule(
        "answers", "changed:peak_before_bytes", "{run}: bytes in use at the peak of step {before}"
    ),
    Rule("answers", "changed:peak_after_bytes", "{run}: bytes in use at the peak of step {after}"),
    Rule("answers", r"(?P<n>growing:\w+|changed:\w+)", "{run}: {n}"),
)


POOL_NAMES = {
    "requested_bytes": ("request", "requested"),
    "in_use_bytes": ("bytes in use", "in use"),
    "free": ("free bytes", "free in the pool"),
    "free_bytes": ("free bytes", "free in the pool"),
    "free_largest": ("largest free chunk", "free: largest chunk"),
    "largest_free_bytes": ("largest free chunk", "free: largest chunk"),
    "free_other": ("other free chunks", "free: other chunks"),
    "pool_bytes": ("pool", "pool"),
    "unreserved": ("unreserved", "unreserved"),
    "fragmentation": ("fragmentation", "fragmentation"),
    "utilisation": ("utilisation", "utilisation"),
}
"""Name and label of each figure of the pool, under all names that it has in data."""

SAID_FACTS = "layer|category|operation|Python line|shape|size|lifetime|address|live at peak|held by"
"""Facts on a tensor that are no sizes, or the formula of one."""
SAID_FIGURES = {
    "method",
    "reproduced",
    "recorded",
    "demand_bytes",
    "unchanged_peak_bytes",
    "extra_time",
}
"""Parts of a prediction that are no single figure."""
NAMED_FIGURE = r".*: [+−-]?[\d,.]*\d(?: B| [KMG]?i?B per step)?"
"""A line of an answer's tooltip that is a figure."""
ALL = "(all)"


@dataclasses.dataclass(frozen=True)
class Sighting:
    """One figure at one place; `value` is None where it is said to be unknown."""

    quantity: str
    value: Value | None
    where: str


def words(category: str, trainable: str | None) -> str:
    """The label of a category, split by training where `trainable` says so."""
    side = {"true": "trainable", "false": "frozen"}.get(trainable or "", trainable)
    plain = category.replace("_", " ")
    return f"{plain}, {side}" if side else plain


def classify(place: str, name: str, scope: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The quantity of a figure and its label; None if the table does not know the figure."""
    for rule in RULES:
        found = re.fullmatch(rule.name, name) if re.fullmatch(rule.place, place) else None
        if found is None:
            continue
        known = {
            **scope,
            **{key: value for key, value in found.groupdict().items() if value is not None},
        }
        if "c" in known:
            known |= {"plain": words(known["c"], None), "c": words(known["c"], known.get("t"))}
        if "p" in known:
            known |= dict(zip(("name", "poolword"), POOL_NAMES[known["p"]], strict=True))
        if "l" in known:
            known |= {
                "short": known["l"].rsplit("/", 1)[-1] or "not tied to a layer",
                "layer": known["l"],
            }
        if "s" in known:
            known["S"] = known["s"].capitalize()
        if "side" in known and place != "predicted":
            known |= {
                f"side{key}": scope[f"{key}{known['side']}"] for key in ("run", "step", "traced")
            }
        return rule.quantity.format_map(
            known
        ), None if rule.label is None else rule.label.format_map(known)
    return None


def _number(text: str) -> Value | None:
    if text == "":
        return None
    value = float(text)
    return int(value) if value.is_integer() else value


def named(record: Mapping[str, Any]) -> Iterator[tuple[str, str, Value | None, str]]:
    """Place, name, exact value and label of each figure of an element of the page."""
    place, label = record["place"], record["label"]
    figure = record.get("figure", "")
    if "figures" in record:
        # Sentences come before the figures, and where these are from after them.
        lines = [
            line for line in record.get("tip", "").split("\n") if re.fullmatch(NAMED_FIGURE, line)
        ]
        failed = record["status"] == "failed" or "requested_bytes" in record["figures"]
        prefix = (
            "failed" if failed and record["answer"] in ("fits", "fragmented") else record["answer"]
        )
        for line, (name, value) in zip(lines, json.loads(record["figures"]).items(), strict=False):
            whose = record["answer"] if name == "capacity_bytes" else prefix
            yield place, f"{whose}:{name}", value, line.rpartition(": ")[0]
    elif "from" in record:
        sides = ("measured", "predicted") if place == "predicted" else ("A", "B")
        for side, value in zip(sides, (record["from"], record["to"]), strict=True):
            yield place, f"{side}:{figure or 'layer'}", _number(value), label if figure else ""
        if "delta" in record:
            yield place, "delta", _number(record["delta"]), ""
    elif record["row"] == "versus":
        return
    elif "parameters" in record:
        yield place, "parameters", _number(record["parameters"]), ""
    elif "fact" in record:
        sizes = re.search(r"([\d,]+) B", record["shown"])
        if not re.fullmatch(SAID_FACTS, record["fact"]):
            yield place, record["fact"], int(sizes[1].replace(",", "")) if sizes else None, label
    elif "value" in record:
        if figure not in SAID_FIGURES:
            yield place, figure, _number(record["value"]), label
    elif "bytes" in record:
        if place == "live":
            # A tensor's bytes and its rounding are two rows.
            figure = f"{'rounding' if record['rounds'] else 'tensor'}:{record['tensor']}"
        elif place == "output" or record["kind"] == "number output":
            figure = "output_bytes"
        elif place == "plan-options":
            figure = record["option"]
        elif place == "plan-dots":
            figure = f"{figure} {record['bytes']}"
        elif place == "peak-bars" and record.get("bar"):
            figure = f"{record['bar']}:{figure}"
        yield place, figure, _number(record["bytes"]), label
    elif re.match(r"-?[\d,]+ B$|unknown$", record.get("tip", "").partition("\n")[0]):
        # An exact size that is explained, but has no name.
        yield place, "", None, label


def page_sightings(
    records: Iterable[Mapping[str, Any]], scope: Mapping[str, Any], where: str
) -> tuple[list[Sighting], list[str]]:
    """Every figure of a view, and what is wrong with their names, labels and texts."""
    seen, faults = [], []
    for record in records:
        layer = scope["layer"]
        if record["totals"]:
            layer = ALL
        elif record["layer"] is not None:
            layer = record["layer"]
        elif record["group"] is not None:
            layer = f"({record['group']})"
        for place, name, value, label in named(record):
            found = classify(place, name, {**scope, "layer": layer})
            here = f"{where}, {place}"
            if found is None:
                tip = record.get("tip", "")[:60]
                faults.append(
                    f"{here}: no quantity for {name!r} ({record['shown'][:40]!r}, {tip!r})"
                )
                continue
            quantity, wanted = found
            if wanted is not None and label and label != wanted:
                faults.append(f"{here}: {quantity} is labelled {label!r}, not {wanted!r}")
            if (
                "bytes" in record
                and isinstance(value, int)
                and not is_text_of(record["shown"], value)
            ):
                faults.append(f"{here}: {quantity} is {value} B, and shown as {record['shown']!r}")
            seen.append(Sighting(quantity, value, here))
    return seen, faults


def derived(seen: Iterable[Sighting]) -> Iterator[Sighting]:
    """What figures say of other quantities: weights are the same at every step, and groups of
    layers have names."""
    for one in seen:
        run, _, quantity = one.quantity.partition(": ")
        if quantity.startswith("measured rounding ") and one.value is not None:
            yield dataclasses.replace(one, quantity=f"{run}: {quantity.removeprefix('measured ')}")
        if found := re.fullmatch(
            r"(weights of layer (?:[^(].*|\(all\))) "
            r"at "
            r"the "
            r"peak "
            r"of "
            r"step "
            r"\d+",
            quantity,
        ):
            yield dataclasses.replace(one, quantity=f"{run}: {found[1]}")
        if found := re.fullmatch(
            r"layer \((frozen|trainable)\)( " r"at " r"the " r"peak " r"of " r"step " r"\d+)",
            quantity,
        ):
            yield dataclasses.replace(one, quantity=f"{run}: {found[1]} layers{found[2]}")
        if found := re.fullmatch(
            r"weights of layer \((frozen|trainable)\)( "
            r"at "
            r"the "
            r"peak "
            r"of "
            r"step "
            r"\d+)",
            quantity,
        ):
            yield dataclasses.replace(one, quantity=f"{run}: weights, {found[1]}{found[2]}")


def is_text_of(shown: str, size: int) -> bool:
    """Whether a text that starts with a number is `size`; other texts are names or empty."""
    text = shown.replace("\u00a0", " ")
    if text.startswith(("+", "−")):
        text, size = text[1:], abs(size)
    if not re.match(r"[<>]?-?[\d.]+( [KMGTP]?i?B)?$", text):
        return True
    return text in {format_bytes(size), *(format_figure(size, unit) for unit in UNITS)}


def fits(text: str, size: Value) -> bool:
    """Whether a rounded size is that of an exact one."""
    number, _, unit = text.partition(" ")
    return isinstance(size, int) and number in (
        format_figure(size, unit),
        format_bytes(size).partition(" ")[0],
    )


def contradictions(seen: Iterable[Sighting]) -> list[str]:
    """Quantities with two values; a rounded size differs if no exact one is written so."""
    by_quantity: dict[str, list[Sighting]] = defaultdict(list)
    for one in seen:
        by_quantity[one.quantity].append(one)
    found = []
    for quantity, all_of_it in by_quantity.items():
        exact = {one.value for one in all_of_it if not isinstance(one.value, str)}
        rounded = {one.value for one in all_of_it if isinstance(one.value, str)}
        if len(exact) > 1 or (
            exact and not all(any(fits(text, each) for each in exact) for text in rounded)
        ):
            values = sorted({f"{one.value} ({one.where})" for one in all_of_it})
            found.append(f"{quantity}: {'; '.join(values)}")
    return found

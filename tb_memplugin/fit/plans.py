"""A plan that makes a training fit into a budget: as text, as JSON, and as lines of Python that
apply it. Pure."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tb_memplugin.fit.asking import PeakSource
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.schema import (
    Layer,
    LedgerRow,
    Run,
    clean,
    counted,
    format_bytes,
    format_table,
    html_text,
)

Kind: TypeAlias = Literal[
    "none",
    "recompute",
    "accumulate",
    "recompute_and_accumulate",
    "freeze",
    "batch_size",
    "optimizer",
    "precision",
    "xla",
    "graph_optimizer",
    "recompute_and_optimizer",
    "recompute_and_batch_size",
]
TimeSource: TypeAlias = Literal["measured", "estimated"]
_BEFORE_MODEL = "  # before the model is made"
_MODELS = ("Functional", "Model", "Sequential")
"""Types of layers that have `get_layer`."""


@dataclasses.dataclass(frozen=True)
class PlanOption:
    """One change, simulated; ``none`` is the training as recorded. Only trained steps show
    ``graph_optimizer``, with which that is off, and ``xla``, which compiles steps that were not
    compiled, and the other way round."""

    kind: Kind
    sentence: str
    # names of layers that are recomputed together, as `remat` takes them
    segments: tuple[tuple[str, ...], ...]
    batch_size: int | None
    accumulation: int  # batches over which gradients are summed
    # None with the `reason` if the change does not fit and the range says little
    peak_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    # whether the whole range of the peak is within the budget; None if a part is, or it is unknown
    fits: bool | None
    extra_time: float | None  # a share of the recorded step's time; None if unknown
    frozen: tuple[str, ...] = ()
    reason: str | None = None
    # of steps of the recorded run, or trained with the change
    peak_source: PeakSource = "predicted"
    time_source: TimeSource = "estimated"


def _word(option: PlanOption) -> str:
    if option.fits is None:
        return "unknown" if option.peak_bytes is None else "maybe"
    return "yes" if option.fits else "no"


def _rank(option: PlanOption) -> tuple[bool, int]:
    """The training as it is comes first, then what fits and what may."""
    return option.kind != "none", ("yes", "maybe", "unknown", "no").index(_word(option))


@dataclasses.dataclass(frozen=True)
class PlanPoint:
    """The least additional time of a step, as a share of the recorded one, within a peak, by
    recomputation."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    extra_time: float
    segments: int


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A change that makes a training fit into a budget; `print` shows it.

    Attributes:
        device: The device.
        budget_bytes: The budget.
        fits: Whether the plan fits; None if nothing could be simulated.
        segments: Names of the layers that `remat` recomputes together, segment after segment.
        batch_size: Examples in a batch; None if unknown.
        accumulation: Batches over which the optimizer sums gradients; 1 for none.
        peak_bytes, low_bytes, high_bytes: Peak and its range; None if unknown.
        peak_source: Whether that peak is measured, in trained steps or recorded ones, or predicted.
        unchanged_peak_bytes: Peak without the plan.
        demand_bytes: Most bytes of the plan's step that are live at once, rounded up to 256 each:
            BFC needs no less.
        extra_time: Additional time of a step as a share of the recorded one; None if unknown.
        time_source: Whether that is measured, in real steps or as the recorded forward pass, or
            estimated from bytes.
        code: Lines to paste.
        options: All changes that were simulated, those that cost least first.
        curve: The least additional time for peaks from the smallest with recomputation to the
            recorded one.
        ledger: Predicted breakdown of the plan's peak; sums to it. Of the smallest if nothing fits;
            empty if trained.
        sentences: What is assumed, or why there is no plan.
        model: Path of the model in the run's layers, before the names of `segments`."""

    device: str
    budget_bytes: int
    fits: bool | None
    segments: tuple[tuple[str, ...], ...] = ()
    batch_size: int | None = None
    accumulation: int = 1
    peak_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    peak_source: PeakSource = "predicted"
    unchanged_peak_bytes: int | None = None
    demand_bytes: int | None = None
    extra_time: float | None = None
    time_source: TimeSource = "estimated"
    code: str = ""
    options: tuple[PlanOption, ...] = ()
    curve: tuple[PlanPoint, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    sentences: tuple[str, ...] = ()
    model: str = ""

    def __str__(self) -> str:
        parts = ["\n".join(_lines(self))]
        if self.options:
            rows = [
                (
                    one.sentence,
                    *_peak_of(one),
                    _word(one),
                    format_time(one.extra_time),
                )
                for one in sorted(self.options, key=_rank)
            ]
            parts.append(format_table(("change", "peak", "source", "fits", "time"), rows))
        if self.curve:
            points = [
                (str(Interval.of(one)), format_time(one.extra_time), str(one.segments))
                for one in self.curve
            ]
            parts.append(format_table(("peak with recomputation", "time", "segments"), points))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {clean(self.device)}: "
            f"{counted(len(self.segments), 'segment')}, batch size {self.batch_size}, peak "
            f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)}, "
            f"fits={self.fits}>"
        )

    def _repr_html_(self) -> str:
        return html_text(str(self))


def _lines(plan: Plan) -> list[str]:
    budget, unchanged = format_bytes(plan.budget_bytes), format_bytes(plan.unchanged_peak_bytes)
    lines = [f"{clean(plan.device)}: budget {budget}, unchanged peak {unchanged}"]
    if plan.fits:
        what = next((option.sentence for option in plan.options if option.fits), "")
        lines.append(f"plan: {what}")
        lines.append(f"{plan.peak_source} peak: {Interval.of(plan)}")
        if plan.code and plan.extra_time is not None:
            lines.append(f"time of a step: {format_time(plan.extra_time)} ({plan.time_source})")
    elif plan.fits is False and len(plan.options) > 1:
        lines.append("plan: none of the simulated changes fits")
    if plan.fits and plan.demand_bytes is not None and plan.peak_bytes is not None:
        rest = max(0, plan.peak_bytes - plan.demand_bytes)
        live = format_bytes(plan.demand_bytes)
        lines.append(f"live at once: {live}; fragmentation: {format_bytes(rest)}")
    unknown = [
        f"{option.sentence}: {option.reason}"
        for option in plan.options
        if option.reason is not None
    ]
    lines += [f"  {clean(sentence)}" for sentence in (*plan.sentences, *unknown)]
    if plan.code:
        lines += ["", *(f"    {line}" for line in plan.code.splitlines())]
    return lines


def _peak_of(option: PlanOption) -> tuple[str, str]:
    if option.peak_bytes is None:
        return "unknown", ""
    return str(Interval.of(option)), option.peak_source


def format_time(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:+.0f} %"


def _remat_line(segments: Sequence[Sequence[str]]) -> str:
    """The line that recomputes segments, on one line for few of them."""
    pairs = [f"({json.dumps(segment[0])}, {json.dumps(segment[-1])})" for segment in segments]
    if len(pairs) <= 1:
        return f"model = tb_memplugin.remat(model, [{''.join(pairs)}])"
    inside = "".join(f"    {pair},\n" for pair in pairs)
    return f"model = tb_memplugin.remat(model, [\n{inside}])"


class Applied(NamedTuple):
    """What the lines of `code_of` need of an option."""

    kind: str
    segments: Sequence[Sequence[str]] = ()
    frozen: Sequence[str] = ()
    batch_size: int | None = None
    accumulation: int = 1


def compiled_with(run: Run) -> str:
    """The package of the Keras that compiled a run's latest model; empty if none did, ``keras`` if
    that is unknown."""
    known = run.layer_tables[-1].compiled_with if run.layer_tables else None
    return "" if known == "none" else known or "keras"


def code_of(
    option: PlanOption | Applied,
    optimizer: str,
    layers: Sequence[Layer],
    is_xla: bool = False,
    keras: str = "keras",
) -> str:
    """Lines that apply an option to a compiled `model` and run as they stand. `optimizer` is the
    recorded class, the first layer the model itself. XLA compiles the step if it compiled the
    recorded one: others have other peaks. `keras` is as from `compiled_with`: what no
    code applies to a loop of one's own, or with Keras 2, is said in a comment."""
    kinds, lines = option.kind.split("_and_"), list[str]()
    is_xla = is_xla ^ ("xla" in kinds)
    accumulates = option.accumulation > 1
    is_by_keras = accumulates and keras == "keras"
    changes_model = bool(option.segments or option.frozen or is_by_keras)
    is_compiling = changes_model or "optimizer" in kinds or "xla" in kinds
    if "graph_optimizer" in kinds:
        off = '{"disable_meta_optimizer": True}'
        lines.append(f"tf.config.optimizer.set_experimental_options({off})  # before training")
    if "precision" in kinds:
        policy = f'{keras}.mixed_precision.set_global_policy("mixed_float16")'
        lines.append(f"{policy if keras else '# dtype policy mixed_float16'}{_BEFORE_MODEL}")
    if is_compiling and keras:
        inner = ".inner_optimizer" if optimizer == "LossScaleOptimizer" else ""
        lines.append(
            f"loss, optimizer = model.loss, model.optimizer{inner}  # of the model as it was "
            "compiled"
        )
    if option.frozen:
        lines += _freezing(option.frozen, {layer.path: layer.type for layer in layers})
    if option.segments:
        if layers and layers[0].type != "Functional":
            lines += [
                "if not model.built:",
                "    model(x[:1])  # the input of a batch: the layers need their shapes",
            ]
        lines.append(_remat_line(option.segments))
    if accumulates and not is_by_keras:
        parts = f"{option.accumulation} batches of {option.batch_size}"
        lines.append(f"# sum the gradients of {parts} and apply their mean in one update")
    if "optimizer" in kinds:
        lines.append(
            f"optimizer = {keras}.optimizers.SGD(learning_rate=0.01)  # choose the learning rate "
            "anew"
            if keras
            else f"# use an SGD optimizer without momentum instead of {optimizer}"
        )
    elif keras and (option.frozen or is_by_keras):
        parts = f', "gradient_accumulation_steps": {option.accumulation}' if is_by_keras else ""
        lines.append(
            f"optimizer = type(optimizer).from_config({{**optimizer.get_config(){parts}}})"
        )
    if is_compiling and keras:
        lines.append(
            f"model.compile(optimizer, loss, jit_compile={is_xla})  # add metrics and others as "
            "before"
        )
    elif "xla" in kinds:
        lines.append(f"# make the step a tf.function(step, jit_compile={is_xla})")
    if accumulates or "batch_size" in kinds:
        lines.append(f"batch_size = {option.batch_size}  # of the data set, or of fit")
    imports = [f"import {keras}"] if keras and any(f"{keras}." in one for one in lines) else []
    if "graph_optimizer" in kinds:
        imports.append("import tensorflow as tf")
    if option.segments:
        imports.append("import tb_memplugin")
    return "\n".join([*imports, *lines])


def besides_memory(option: PlanOption, layers: Sequence[Layer]) -> list[str]:
    """What an option changes in the training, in sentences."""
    parts, size, said = option.accumulation, option.batch_size or 0, []
    if parts > 1:
        said.append(f"One update follows {parts} batches, with the mean of their gradients.")
    elif "batch_size" in option.kind:
        said.append(
            "A smaller batch changes the training: more updates in an epoch, with noisier "
            "gradients."
        )
    if (parts > 1 or "batch_size" in option.kind) and any(
        layer.type == "BatchNormalization" for layer in layers
    ):
        said.append(f"Batch normalization uses the statistics of {counted(size, 'example')}.")
    if "optimizer" in option.kind:
        said.append("Another optimizer changes the training: it needs its own learning rate.")
    if "precision" in option.kind:
        said.append("Half precision changes the training: compare the losses.")
    if option.kind in ("xla", "graph_optimizer"):
        said.append(
            "Results are equal but for rounding: operations are merged and ordered in other ways."
        )
    if option.frozen:
        said.append(
            f"{counted(len(option.frozen), 'layer')} "
            f"{'no longer learn' + 's' * (len(option.frozen) == 1)}."
        )
    return said


def _freezing(frozen: Sequence[str], types: dict[str, str]) -> list[str]:
    """Lines that freeze layers; inside a layer that is no model of its own, they look for its parts
    by name."""
    root = next(iter(types), "")
    by_parent: dict[str, list[str]] = {}
    inner = []
    for name in frozen:
        parents = name.split("/")[:-1]
        paths = ["/".join([root, *parents[: depth + 1]]) for depth in range(len(parents))]
        if all(types.get(path) in _MODELS for path in paths):
            by_parent.setdefault("/".join(parents), []).append(name.rpartition("/")[-1])
        else:
            inner.append(name)
    lines = []
    for parent, names in by_parent.items():
        getters = "".join(f".get_layer({json.dumps(one)})" for one in parent.split("/") if one)
        lines += [
            f"for name in {json.dumps(names)}:",
            f"    model{getters}.get_layer(name).trainable = False",
        ]
    if inner:
        lines += [
            f"for path in {json.dumps(inner)}:",
            "    layer = model",
            '    for name in path.split("/"):',
        ]
        lines += [
            "        parts = layer._flatten_layers(include_self=False, recursive=False)",
            "        layer = next(one for one in parts if one.name == name)",
            "    layer.trainable = False",
        ]
    return lines

"""The lines of Python that apply a change of a plan. Pure."""

import json
from collections.abc import Sequence

from tb_memplugin.analysis.fit.plan_answer import PlanOption
from tb_memplugin.model import Layer

_MODELS = ("Functional", "Model", "Sequential")
"""Types of layers that have `get_layer`."""


def remat_line(segments: Sequence[Sequence[str]]) -> str:
    """The line that recomputes segments, on one line for few of them."""
    pairs = [f"({json.dumps(segment[0])}, {json.dumps(segment[-1])})" for segment in segments]
    if len(pairs) <= 1:
        return f"model = tb_memplugin.remat(model, [{''.join(pairs)}])"
    inside = "".join(f"    {pair},\n" for pair in pairs)
    return f"model = tb_memplugin.remat(model, [\n{inside}])"


def code_of(option: PlanOption, optimizer: str, layers: Sequence[Layer]) -> str:
    """The lines that apply an option.

    Args:
        option: The change.
        optimizer: Class name of the recorded optimizer.
        layers: The model's layers, the first being the model itself.
    """
    lines = []
    kinds = option.kind.split("_and_")
    if "precision" in kinds:
        lines.append('keras.mixed_precision.set_global_policy("mixed_float16")  # before the model is made')
    if option.frozen:
        lines += _freezing(option.frozen, {layer.path: layer.type for layer in layers})
    if option.segments:
        lines.append(remat_line(option.segments))
    if option.accumulation > 1:
        arguments = f"..., gradient_accumulation_steps={option.accumulation}"
        lines.append(f"optimizer = keras.optimizers.{optimizer}({arguments})  # the other arguments as before")
    if "optimizer" in kinds:
        lines.append("optimizer = keras.optimizers.SGD()")
    if option.segments or option.frozen or option.accumulation > 1 or "optimizer" in kinds:
        notes = [] if option.accumulation > 1 else ["the other arguments as before"]
        notes += ["without jit_compile: compiled steps have other peaks"] if option.segments else []
        lines.append("model.compile(optimizer, ...)" + (f"  # {', '.join(notes)}" if notes else ""))
    if option.accumulation > 1 or "batch_size" in kinds:
        lines.append(f"batch_size = {option.batch_size}")
    return "\n".join(lines)


def _freezing(frozen: Sequence[str], types: dict[str, str]) -> list[str]:
    """Lines that freeze layers; layers inside one that is no model of its own are named in a comment."""
    root = next(iter(types), "")
    by_parent: dict[str, list[str]] = {}
    unreachable = []
    for name in frozen:
        parents = name.split("/")[:-1]
        paths = ["/".join([root, *parents[: depth + 1]]) for depth in range(len(parents))]
        if all(types.get(path) in _MODELS for path in paths):
            by_parent.setdefault("/".join(parents), []).append(name.rpartition("/")[-1])
        else:
            unreachable.append(name)
    lines = []
    for parent, names in by_parent.items():
        getters = "".join(f".get_layer({json.dumps(one)})" for one in parent.split("/") if one)
        lines += [f"for name in {json.dumps(names)}:", f"    model{getters}.get_layer(name).trainable = False"]
    return lines + [f"# set `trainable = False` on {name}" for name in unreachable]

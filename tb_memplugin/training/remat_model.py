"""A model that recomputes segments of its layers in the backward pass instead of saving their results."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import Segments, functional, is_graph, segments_of
from tb_memplugin.training.graph_model import CallSegment, SegmentedGraph, nested_models, segmented_steps
from tb_memplugin.training.recompute import Segment

RUNS_ONCE = "It runs once, as without `remat`."


def remat(model: Any, plan_or_cuts: Any) -> Any:
    """Return a model with the same layers and weights that saves less for the backward pass.

    It computes the layers of each segment again in the backward pass, from the weights and random seeds of the first
    pass: batch-norm statistics are updated once, and dropout masks repeat. Compile and train it like `model`; both
    share all layers and weights, and each loads weights that the other saved. Keras's own XLA compilation
    (`jit_compile`) stays off unless it is requested.

    Args:
        model: A built Keras model: sequential, functional, with nested models, or subclassed. In a subclassed model
            each segment is a single layer.
        plan_or_cuts: Names of layers, each of which ends a segment; layers after the last one are not recomputed. Or
            pairs of names: the first and the last layer of each segment. Or an object with `segments`, a tuple of
            tuples of layer names.

    Layers that cannot be recomputed exactly run once, as in `model`, and a warning names them.

    Raises:
        RecomputationError: a layer is not in the model, or none can be recomputed exactly.
    """
    if not isinstance(model, keras.Model):
        raise RecomputationError(f"The model is a {type(model).__name__}. Pass a model of Keras 3.")
    segments = segments_of(model, plan_or_cuts)
    if is_graph(model):
        prefixes = {path.rpartition("/")[0] for segment in segments for path in segment}
        graphs = nested_models(model)
        for prefix in sorted(prefixes):
            if prefix and f"{prefix}/" not in graphs:
                raise RecomputationError(
                    f"{prefix} is not a functional or sequential model in {model.name}, so its layers cannot be "
                    f"segments. Name {prefix} itself to recompute it as a whole."
                )
        refusals: list[str] = []
        recomputed = _graph(model, segments, refusals, "")
        if refusals and not _has_segments(recomputed):
            raise RecomputationError(refusals[0])
        for why in dict.fromkeys(refusals):
            warnings.warn(f"{why} {RUNS_ONCE}", stacklevel=2)
        return recomputed
    return _subclassed(model, segments)


def _has_segments(model: Any) -> bool:
    own = any(isinstance(step, CallSegment) for step in model.segmented_steps)
    return own or any(map(_has_segments, model.nested.values()))


def _graph(model: Any, segments: Segments, refusals: list[str], prefix: str) -> Any:
    """A functional model that runs the segments below a prefix; `refusals` as in `segmented_steps`."""
    own = tuple(segment for segment in segments if segment[0].rpartition("/")[0] == prefix.rstrip("/"))
    steps = segmented_steps(model, own, refusals, prefix)
    nested = {}
    for path, graph in nested_models(model, prefix).items():
        direct = path.removeprefix(prefix).count("/") == 1
        if direct and any(layer.startswith(path) for segment in segments for layer in segment):
            nested[id(graph)] = _graph(graph, segments, refusals, path)
    source = functional(model)
    base = Functional if isinstance(model, keras.Sequential) else type(model)
    new = _new(base, (SegmentedGraph,), {"segmented_steps": steps, "nested": nested})
    Functional.__init__(new, source.input, source.output, name=model.name)
    _copy_state(model, new)
    return new


def _subclassed(model: Any, segments: Segments) -> Any:
    """A copy of a subclassed model that calls some of its layers so that they are recomputed."""
    if not model.built:
        raise RecomputationError(f"Model {model.name} is not built. Call it on a batch first.")
    layers: dict[str, list[Any]] = {}
    for layer in model._flatten_layers(include_self=False):
        layers.setdefault(layer.name, []).append(layer)
    chosen = []
    for segment in segments:
        if len(segment) > 1:
            raise RecomputationError(
                f"Layers {segment[0]} and {segment[1]} are one segment, but {model.name} is a subclassed model: its "
                f"`call` may use what lies between them. Make each layer a segment by itself."
            )
        named = layers.get(segment[0], [])
        if len(named) != 1:
            raise RecomputationError(
                f"{len(named)} layers of {model.name} have the name {segment[0]}. Give each layer a name of its own."
                if named
                else f"{model.name} has no layer {segment[0]}. Its layers: {', '.join(layers)}."
            )
        chosen.append(RecomputedLayer(named[0]))
    base = type(model)

    @functools.wraps(base.call)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for layer in chosen:
                stack.enter_context(layer.active())
            return base.call(self, *arguments, **keywords)

    new = _new(base, (), {"call": call})
    keras.Model.__init__(new, name=model.name, dtype=model.dtype_policy)
    _copy_state(model, new)
    new.built = True
    return new


def _new(base: Any, mixins: Sequence[type], attributes: dict[str, Any]) -> Any:
    """An uninitialized instance of a subclass that Keras saves as the class that it extends."""
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "compile": _compile(base)}
    kind: Any = type(base.__name__, (*mixins, base), {**attributes, **names})
    return kind.__new__(kind)


def _copy_state(model: Any, new: Any) -> None:
    """Give the new model what the user has added to the old one, but nothing that `compile` has set."""
    compiled = keras.Sequential(name="compiled")
    compiled.compile("sgd", "mse")
    for name, value in vars(model).items():
        if name not in vars(new) and name not in vars(compiled):
            setattr(new, name, value)
    for kind in ("_trainable_variables", "_non_trainable_variables"):
        known = {id(variable) for variable in getattr(new, kind)}
        getattr(new, kind).extend(variable for variable in getattr(model, kind) if id(variable) not in known)
    new._dtype_policy = model.dtype_policy
    new._trainable = model._trainable


def _compile(base: Any) -> Any:
    @functools.wraps(base.compile)
    def compile(self: Any, *arguments: Any, **keywords: Any) -> Any:
        keywords.setdefault("jit_compile", False)
        return base.compile(self, *arguments, **keywords)

    return compile


class RecomputedLayer:
    """A layer that is recomputed whenever the model calls it."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self._segment = Segment([layer])

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Replace the layer's `call`. Only this instance changes, and only for the duration."""
        attributes = vars(self.layer)
        before = attributes.get("call")
        call = self.layer.call
        attributes["call"] = lambda *arguments, **keywords: self._recompute(call, arguments, keywords)
        try:
            yield
        finally:
            del attributes["call"]
            if before is not None:
                attributes["call"] = before

    def _recompute(self, call: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        flat = keras.tree.flatten((arguments, keywords))
        at = [place for place, value in enumerate(flat) if isinstance(value, tf.Tensor)]
        structure: list[Any] = []

        def run(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
            given = dict(zip(at, tensors, strict=True))
            values = [given.get(place, value) for place, value in enumerate(flat)]
            its_arguments, its_keywords = keras.tree.pack_sequence_as((arguments, keywords), values)
            outputs = call(*its_arguments, **its_keywords)
            after(self.layer.name)
            structure[:] = [outputs]
            return list(keras.tree.flatten(outputs))

        try:
            outputs = self._segment.recompute(run, [flat[place] for place in at])
        except RecomputationError as error:
            warnings.warn(f"{error} {RUNS_ONCE}", stacklevel=2)
            return call(*arguments, **keywords)
        return keras.tree.pack_sequence_as(structure[0], outputs)

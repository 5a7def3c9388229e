"""Cut points of a model's layer graph, and the segments of layers between them.

Layers are named by their path: `conv1`, or `backbone/conv1` inside a nested model. The linear order
is the one in which Keras runs the graph."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from tb_memplugin.errors import RecomputationError
from tb_memplugin.schema import some, unknown_name

Segments = tuple[tuple[str, ...], ...]
"""Segments in linear order, each with the paths of all its layers. A segment lies inside one
(nested) model."""


class LayerCall:
    """A node of Keras's graph; it `reads` and `makes` tensors, by their ids."""

    def __init__(self, node: Any) -> None:
        self.node, self.operation, self.name = node, node.operation, str(node.operation.name)
        self.reads, self.makes = set(map(id, node.input_tensors)), set(map(id, node.outputs))


def is_graph(layer: Any) -> bool:
    """Whether a layer is a model whose layer graph Keras knows: functional or sequential, with
    Keras's `call`."""
    # not above: the program may be importing it when it imports TensorFlow, whose calls are wrapped
    # then
    import keras

    # not exported; a model made here would be the program's
    from keras.src.models.functional import Functional

    if isinstance(layer, keras.Sequential):
        return type(layer).call is keras.Sequential.call and layer._functional is not None
    return isinstance(layer, Functional) and type(layer).call is Functional.call


def functional(model: Any) -> Any:
    import keras

    return model._functional if isinstance(model, keras.Sequential) else model


def calls(model: Any) -> list[LayerCall]:
    """The calls of a layer graph in the order in which Keras runs them, without its inputs."""
    by_depth = functional(model)._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [LayerCall(node) for node in nodes if node.operation and not node.is_input]


def layer_order(model: Any) -> tuple[str, ...]:
    return tuple(place.path for place in _flat(model, "", None))


def cut_points(model: Any) -> tuple[str, ...]:
    """Paths of the layers after which everything that follows depends on a single tensor, in linear
    order.

    Inputs of the model do not count: they stay in memory for the whole step. Of a subclassed model,
    whose order of calls is unknown, these are the layers that it keeps in lists; each of them can
    be recomputed by itself."""
    if is_graph(model):
        return tuple(_cut_points(model, "", set(range(len(model.inputs)))))
    import keras

    listed: dict[int, Any] = {}  # lists or tuples of a single layer are none
    for value in vars(model).values():
        if (
            isinstance(value, list | tuple)
            and len(value) > 1
            and value is not getattr(model, "_layers", None)
        ):
            listed.update(
                {id(layer): layer for layer in value if isinstance(layer, keras.layers.Layer)}
            )
    return tuple(layer.name for layer in listed.values())


def _cut_points(model: Any, prefix: str, free: set[int]) -> Iterator[str]:
    """`free` are the positions of the model's inputs that do not count."""
    steps = calls(model)
    times = Counter(call.name for call in steps)
    uncounted = {id(tensor) for at, tensor in enumerate(model.inputs) if at in free}
    last_use = {tensor: at for at, call in enumerate(steps) for tensor in call.reads - uncounted}
    alive = {id(tensor) for tensor in model.inputs}
    for at, call in enumerate(steps):
        alive = {tensor for tensor in alive if last_use.get(tensor, -1) > at}
        if not alive and times[call.name] == 1 and is_graph(call.operation):
            inner = {
                position
                for position, tensor in enumerate(call.node.input_tensors)
                if id(tensor) in uncounted
            }
            yield from _cut_points(call.operation, f"{prefix}{call.name}/", inner)
        makes = {tensor for tensor in call.makes if last_use.get(tensor, -1) > at}
        if not alive and len(makes) == 1 and times[call.name] == 1:
            yield prefix + call.name
        alive |= makes


def segments_of(model: Any, plan_or_cuts: Any) -> Segments:
    planned = getattr(plan_or_cuts, "segments", None)
    # all layers of each segment; operations that are no layers lie between and after them
    if planned is not None:
        named = tuple(tuple(segment) for segment in planned if segment)
        return _segments(model, named, False) if is_graph(model) else named
    cuts = [plan_or_cuts] if isinstance(plan_or_cuts, str) else plan_or_cuts
    if not isinstance(cuts, Collection):
        raise RecomputationError(
            f"Pass names of layers, pairs of names, or a plan. Received: {plan_or_cuts!r:.80}"
        )
    are_names = all(isinstance(one, str) for one in cuts)
    return _between_cuts(model, list(cuts)) if are_names else _of_pairs(model, list(cuts))


def _between_cuts(model: Any, cuts: Sequence[str]) -> Segments:
    """The segments that a sequence of cuts forms: each cut ends one, and layers after the last cut
    are in none. A segment also ends where a nested model with cuts inside begins or ends. In a
    subclassed model, each cut is the name of a layer that is a segment by itself. A cut must be a
    layer of the model that is called once."""
    if not is_graph(model):
        return tuple((name,) for name in cuts)
    opened = {path.rpartition("/")[0] for path in cuts}
    opened |= {prefix for path in opened for prefix in _prefixes(path)}
    flat = list(_flat(model, "", opened))
    times = Counter(place.path for place in flat)
    for cut in cuts:
        if times[cut] != 1:
            raise RecomputationError(
                f"Layer {cut} is called {times[cut]} times, so it marks no single place. Cut "
                "after another layer."
                if times[cut]
                else f"The model has no layer {cut}. cut_points(model) lists where it can be cut."
            )
    if not cuts:
        return ()
    last = max(at for at, place in enumerate(flat) if place.path in set(cuts))
    segments: list[list[str]] = [[]]
    for path, whole, _ in flat[: last + 1]:
        if not whole or (
            segments[-1] and segments[-1][-1].rpartition("/")[0] != path.rpartition("/")[0]
        ):
            segments.append([])
        if whole:
            segments[-1].append(path)
        if path in cuts:
            segments.append([])
    return tuple(tuple(dict.fromkeys(segment)) for segment in segments if segment)


def _of_pairs(model: Any, pairs: Sequence[Sequence[str]]) -> Segments:
    """The segments between pairs of layers, the first and the last one of each, in linear order.
    Operations that are no layers, such as `x + y`, belong to the layers that they follow. The
    layers of a pair must follow each other in one (nested) model."""
    for pair in pairs:
        if (
            isinstance(pair, str)
            or len(pair) != 2
            or not all(isinstance(name, str) for name in pair)
        ):
            raise RecomputationError(
                "A segment is a pair of names, its first and its last layer. Received: "
                f"{pair!r:.80}"
            )
        first, last = pair
        if first != last and not is_graph(model):
            raise RecomputationError(
                f"Layers {first} and {last} are one segment, but {model.name} is a subclassed "
                f"model. Make each layer a segment by itself: ({first!r}, {first!r})."
            )
    return (
        _segments(model, pairs, True) if is_graph(model) else tuple((first,) for first, _ in pairs)
    )


def _segments(model: Any, groups: Sequence[Sequence[str]], with_layers_between: bool) -> Segments:
    found: list[tuple[str, ...]] = []
    after: dict[str, int] = {}  # place after the last segment inside each nested model
    for names in groups:
        inside = names[0].rpartition("/")[0]
        flat = _flat(model, "", set(_prefixes(inside)))
        order = [one for one in flat if one.path.rpartition("/")[0] == inside]
        paths, places = [one.path for one in order], list[int]()
        for name in names:
            start = places[-1] if places and with_layers_between else after.get(inside, 0)
            if name not in paths:
                raise RecomputationError(
                    unknown_name("The model has no layer", name, paths, "in order:")
                )
            if name not in paths[start:]:
                behind = f"behind the segments before it. These follow: {some(paths[start:])}."
                raise RecomputationError(f"The model has no layer {name!r} {behind}")
            places.append(paths.index(name, start))
        ends = range(max(places) + 1, len(order))
        after[inside] = next((at for at in ends if order[at].is_layer), len(order))
        inner = order[min(places) : after[inside]]
        if not with_layers_between:
            inner = [one for one in inner if not one.is_layer or one.path in names]
        found.append(tuple(dict.fromkeys(one.path for one in inner)))
    return tuple(found)


class _Place(NamedTuple):
    """A call in linear order: whether it is one unit, which a nested model with cuts inside is not,
    and whether it is a layer, not an operation such as `x + y`."""

    path: str
    whole: bool
    is_layer: bool


def _prefixes(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def _flat(model: Any, prefix: str, opened: set[str] | None) -> Iterator[_Place]:
    """The calls in linear order, those inside of opened nested models (None: of all) before these
    themselves."""
    import keras

    for call in calls(model):
        path = prefix + call.name
        whole = not is_graph(call.operation) or (opened is not None and path not in opened)
        if not whole:
            yield from _flat(call.operation, f"{path}/", opened)
        yield _Place(path, whole, isinstance(call.operation, keras.layers.Layer))

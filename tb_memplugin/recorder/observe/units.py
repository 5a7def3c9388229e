"""The layers of a model that can be recomputed together."""

from typing import Any

from tb_memplugin.errors import MemoryPluginError


def recomputable_units(model: Any) -> dict[str, int]:
    """Path of a layer inside the model to its number, as `Layer.unit` has it; empty if the layer graph is unknown.

    Numbers go on by one between neighbors that can be recomputed together, and by two where they cannot.
    """
    import keras

    if not isinstance(model, keras.Model):
        return {}
    try:
        from tb_memplugin.recomputation.segments import cut_points, is_graph, segments_between

        segments = segments_between(model, cut_points(model))
    except (
        MemoryPluginError,
        AttributeError,
        ImportError,
        TypeError,
        ValueError,
    ):  # a graph of another version of Keras
        return {}
    joins = is_graph(model)
    units: dict[str, int] = {}
    number, parent = -1, None
    for segment in segments:
        inside = segment[0].rpartition("/")[0]
        number += 1 if joins and inside == parent else 2
        parent = inside
        units.update(dict.fromkeys(segment, number))
    return units

"""Subclassed models in which single layers are recomputed: their calls are replaced while the model is called."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.recomputation.recompute import Segment


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

        outputs = self._segment.recompute(run, [flat[place] for place in at])
        return keras.tree.pack_sequence_as(structure[0], outputs)

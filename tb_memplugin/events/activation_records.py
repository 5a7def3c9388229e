"""Frames of activation bytes by layer over steps."""

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import LayerActivations


def activations_frame(activations: LayerActivations, sequence: int) -> Frame:
    """Frame of activation bytes by layer over steps."""
    if activations.bytes.shape != (len(activations), len(activations.layers)):
        raise FormatError(
            f"activation bytes of shape {activations.bytes.shape} do not fit "
            f"{len(activations)} steps × {len(activations.layers)} layers"
        )
    tables = {
        "steps": {"step": activations.step, "wall_time": activations.wall_time},
        "layers": {"layer": activations.layers},
        "bytes": {"bytes": np.ascontiguousarray(activations.bytes.T).reshape(-1)},
    }
    return fields.make_frame("activations", sequence, activations.step, {}, tables)


def read_activations(frame: Frame) -> LayerActivations:
    """Read the activation bytes of a frame of stream ``activations``."""
    steps = fields.table_of(frame, "steps")
    layers = fields.strings(fields.table_of(frame, "layers"), "layer")
    values = fields.byte_column(fields.table_of(frame, "bytes"), "bytes")
    step = fields.steps_of(steps)
    if len(layers) > fields.MAX_LAYERS or None in layers or len(set(layers)) != len(layers):
        raise FormatError(
            f"activations need unique layer paths, at most {fields.MAX_LAYERS}. Received: {len(layers)} columns"
        )
    if len(values) != len(step) * len(layers):
        raise FormatError(f"{len(values)} activation values do not fit {len(step)} steps × {len(layers)} layers")
    return LayerActivations(
        step=step,
        wall_time=fields.floats(steps, "wall_time"),
        layers=tuple(path for path in layers if path is not None),
        bytes=values.reshape(len(layers), len(step)).T,
    )

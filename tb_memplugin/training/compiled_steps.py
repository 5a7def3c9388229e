"""Asks XLA's compiler what a compiled model's training step needs, for batch sizes that were never
trained."""

from typing import Any

import tensorflow as tf

from tb_memplugin.fit import Segments
from tb_memplugin.importers import read_module
from tb_memplugin.training.asked_steps import AskedSteps, changed_model
from tb_memplugin.training.saved_state import restored

_STAGE = "optimized_hlo_proto_serialized"


class CompiledSteps(AskedSteps):
    """For a model whose training step TensorFlow compiles with XLA."""

    def _plan(self, model: Any, batch_size: int, segments: Segments, accumulates: bool) -> int:
        # The compiler lets no other thread of Python run, so the line appears before it begins.
        with restored(model, trains=False):
            inside = tuple(
                tuple(path.removeprefix(f"{model.name}/") for path in one) for one in segments
            )
            changed = changed_model(model, inside, True, 1 + accumulates)
            return self._temporary_bytes(changed, batch_size)

    def _temporary_bytes(self, model: Any, batch_size: int) -> int:
        # The public way takes no other batch size than the traced one.
        from tensorflow.python.eager.polymorphic_function.compiler_ir import from_concrete_function

        if model.distribute_strategy.num_replicas_in_sync > 1:
            raise NotImplementedError("the model is trained on several devices")
        model._symbolic_build(data_batch=self._example)

        def one_step_on_data(*flat: Any) -> Any:
            return model.train_step(tf.nest.pack_sequence_as(self._example, flat))

        def specs(size: int | None) -> list[Any]:
            return [
                tf.TensorSpec((size, *one.shape[1:]), one.dtype)
                for one in tf.nest.flatten(self._example)
            ]

        # A dataset leaves the batch dimension open: with a known one, gradients are other
        # operations.
        step = tf.function(
            one_step_on_data, jit_compile=True, autograph=False
        ).get_concrete_function(*specs(None))
        ask = from_concrete_function(step, specs(batch_size))
        with tf.device(self._device):
            module = read_module(ask(stage=_STAGE))
        if module is None:
            raise NotImplementedError("the compiler returned no buffer assignment")
        return max((one.bytes for one in module.allocations if not one.output), default=0)

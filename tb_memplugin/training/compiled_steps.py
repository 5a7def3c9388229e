"""Asks XLA's compiler what a compiled model's training step needs, for batch sizes that were never
trained."""

import math
import time
import types
import warnings
import weakref
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.fit import Asked, Segments
from tb_memplugin.importers import read_module
from tb_memplugin.progress import Progress
from tb_memplugin.training.remat_model import remat
from tb_memplugin.training.saved_state import restored

_STAGE = "optimized_hlo_proto_serialized"
_MOST_CHARACTERS = 200  # of an error's text


class CompiledSteps:
    """Asks about the training step of a model as it was compiled when this was made.

    A question traces and compiles the step and runs nothing; afterwards the model is restored bit
    for bit. Interrupts are raised when the compiler returns. Does not keep the model alive; a model
    that was changed is not asked.

    Args:
        model: The compiled Keras model.
        example: A batch of one example, as arrays.
        device: Name of the device that it is trained on, such as ``GPU:0``.
        until: When questions must end, by `time.perf_counter`, if each took as long as the longest
            one so far."""

    def __init__(self, model: Any, example: Any, device: str, until: float = math.inf) -> None:
        self._model, self._program = weakref.ref(model), _program(model)
        self._example, self._device, self._until, self._longest = example, device, until, 0.0
        self._answers: dict[Any, Asked] = {}
        self.refusal: str | None = None  # why nothing is asked, as a sentence

    def __call__(
        self, batch_size: int, segments: Segments = (), accumulates: bool = False
    ) -> Asked:
        """Ask about a batch size, with segments recomputed: tuples of paths of layers, the model's
        name first; or with gradients accumulated over some batches."""
        model = self._model()
        if self.refusal is not None:
            return Asked(None, self.refusal)
        if model is None or _program(model) != self._program:
            what = "does not exist any more" if model is None else "was changed after the probe"
            return Asked(None, f"XLA was not asked: the model {what}.")
        if (key := (batch_size, segments, accumulates)) not in self._answers:
            if (began := time.perf_counter()) + self._longest > self._until:
                return Asked(None, "XLA was not asked: that would take too long.")
            self._answers[key] = self._answer(model, *key)
            self._longest = max(self._longest, time.perf_counter() - began)
        return self._answers[key]

    def _answer(self, model: Any, batch_size: int, segments: Segments, accumulates: bool) -> Asked:
        which = f"batch size {batch_size:,}" + (
            f" with {len(segments)} segments recomputed" if segments else ""
        )
        which += ", accumulating gradients" * accumulates
        start = time.perf_counter()
        try:
            # The compiler lets no other thread of Python run, so the line appears before it begins.
            with Progress("tb_memplugin", delay=0.0) as progress, restored(model, trains=False):
                progress.part(f"asking XLA at {which}")
                inside = tuple(
                    tuple(path.removeprefix(f"{model.name}/") for path in one) for one in segments
                )
                found = self._temporary_bytes(
                    changed_model(model, inside, True, 1 + accumulates), batch_size
                )
        except Exception as error:  # whatever a user's step, or the compiler, raises
            text = " ".join(str(error).split())[:_MOST_CHARACTERS]
            return Asked(
                None, f"XLA was asked for {which} and failed with {type(error).__name__}: {text}"
            )
        seconds = time.perf_counter() - start
        return Asked(
            found, f"XLA planned the step for {which} in {seconds:.1f} s, without running it."
        )

    def __reduce__(self) -> Any:
        return type(None), ()  # a run that is pickled has no model to ask

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


def changed_model(model: Any, segments: Segments, compiled: bool, accumulation: int = 1) -> Any:
    """The model, or one that shares everything with it and recomputes segments of layers by their
    names inside it, with its settings but for these. Changes the given one, which `restored`
    undoes."""
    settings = {
        **model._compile_config.config,
        "optimizer": model.optimizer,
        "jit_compile": compiled,
    }
    if accumulation > 1:
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        parts = {"gradient_accumulation_steps": accumulation}
        settings["optimizer"] = type(optimizer).from_config({**optimizer.get_config(), **parts})
        keras.Model.compile(model, **settings)
        settings["optimizer"] = model.optimizer
    if not segments:
        model.jit_compile = compiled
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on layers that run once
        found = remat(model, types.SimpleNamespace(segments=segments))
    keras.Model.compile(found, **settings)
    return found


def _program(model: Any) -> tuple[Any, ...]:
    """What a step depends on besides its data: which objects, and whether it is compiled at all."""
    parts = (model.optimizer, getattr(model, "_compile_loss", None), *model.trainable_variables)
    return (*map(id, parts), model.jit_compile, model.run_eagerly)

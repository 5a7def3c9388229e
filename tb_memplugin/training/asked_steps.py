"""Questions to XLA's compiler about a compiled model's training step, for batch sizes that were
never trained: what is the same for each backend."""

import math
import time
import types
import warnings
import weakref
from typing import Any

import keras

from tb_memplugin.errors import RecordingError
from tb_memplugin.fit import Asked, Segments
from tb_memplugin.progress import Progress

_MOST_CHARACTERS = 200  # of an error's text


class AskedSteps:
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
            with Progress("tb_memplugin", delay=0.0) as progress:
                progress.part(f"asking XLA at {which}")
                found = self._plan(model, batch_size, segments, accumulates)
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

    def _plan(self, model: Any, batch_size: int, segments: Segments, accumulates: bool) -> int:
        """The bytes of the step's temporaries. Restores the model."""
        raise NotImplementedError


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
    from tb_memplugin.training.remat_model import remat  # needs TensorFlow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on layers that run once
        found = remat(model, types.SimpleNamespace(segments=segments))
    keras.Model.compile(found, **settings)
    return found


def _program(model: Any) -> tuple[Any, ...]:
    """What a step depends on besides its data: which objects, and whether it is compiled at all."""
    parts = (model.optimizer, getattr(model, "_compile_loss", None), *model.trainable_variables)
    return (*map(id, parts), model.jit_compile, model.run_eagerly)


def checked_sizes(batch_sizes: Any) -> tuple[int, ...]:
    try:
        given = list(batch_sizes)
    except TypeError:
        given = []
    valid = all(
        hasattr(one, "__index__") and not isinstance(one, bool) and int(one) > 0 for one in given
    )
    if not given or not valid or len({int(one) for one in given}) < len(given):
        wanted = "batch_sizes must be distinct positive integers, such as (4, 8)"
        raise RecordingError(f"{wanted}. Received: {batch_sizes!r:.80}")
    return tuple(sorted(int(one) for one in given))


def check_model(model: Any) -> None:
    """`RecordingError` if a model cannot be trained as it is."""
    if not isinstance(model, keras.Model):
        raise RecordingError(f"model must be a Keras model. Received: {type(model).__name__}")
    if not model.compiled or model.optimizer is None:
        raise RecordingError(
            f"model {model.name!r} is not compiled. Call model.compile with an optimizer first."
        )
    if not model.built:
        raise RecordingError(
            f"model {model.name!r} has no weights yet. Call it once, or model.build, first."
        )


SIZES = (4, 8)  # recorded batch sizes, those that are not larger than the training's
LARGE = 256  # batch size from which on they are larger: predictions are made from less far away
DEFAULT_SIZE = 32  # what `fit` takes for arrays


def sizes_below(size: int) -> list[int]:
    """The batch sizes to record of a training with batches of a size."""
    return [
        one for one in (max(least, least * size // LARGE) for least in SIZES) if one <= size
    ] or [size]

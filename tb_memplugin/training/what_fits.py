"""`print_what_fits`: measures what fits after a failed allocation, with model and data from the
exception's frames."""

import dataclasses
import functools
import gc
import inspect
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.errors import RecordingError
from tb_memplugin.export import RecordedRun, Runs, plan_of_run
from tb_memplugin.fit import (
    Applied,
    Conditions,
    Evidence,
    Predictor,
    beyond_batch,
    code_of,
    stretch,
)
from tb_memplugin.recorder.failure import causes, memory_request, raised_errors
from tb_memplugin.schema import Oom, format_bytes
from tb_memplugin.training.asked_steps import SIZES
from tb_memplugin.training.compiled_steps import CompiledSteps
from tb_memplugin.training.largest import BatchSizeAnswer, Trial, largest_of
from tb_memplugin.training.probing import (
    MOST_DIFFERENT,
    Examples,
    checked_devices,
    peak_of,
    recorded_steps,
    replicas_of,
)

_TRAINS = ("fit", "train_on_batch")
_UNLIKE = (
    "steps with the first examples of the data do not fail as the training did. The "
    "failed batch was unlike them, for example with longer sequences or larger images, or memory "
    "was in use that is free now. Call tb_memplugin.largest_batch_size(model, batch) with such a "
    "batch."
)


_NO_ROOM = (
    "memory ran out in steps with few examples, or as the model was copied to restore it after "
    "them. Its weights and optimizer state leave too little memory: use an optimizer with fewer "
    "slots, a smaller model, or a larger device."
)


class TimeIsUpError(Exception):
    """Raised between two trials."""


def print_what_fits(error: BaseException, log_dir: str, seconds: float = 120.0) -> None:
    """Measure and print, on standard error, what fits after a training step ran out of memory.

    Prints the largest batch size that fits, a plan for the failed batch size, and their code. Steps
    with small batches run on the model, which is restored. After a step that XLA compiled, its
    compiler is asked instead. ``Ctrl+C`` ends it.

    Args:
        error, log_dir: The exception of `fit` or `train_on_batch`, and the directory of the run
            that recorded it.
        seconds: The longest time, after which no further trial begins; the running one ends
            first."""
    try:
        run = Runs(log_dir)["."]
        oom = next((one for one in reversed(run.ooms) if one.failed), None)
        if oom is not None and (oom.phase, oom.during) == ("train", "step"):
            _print(f"\nLooking for what fits: up to {seconds:.0f} s, Ctrl+C ends it.")
            with raised_errors.ignored():
                _measure(error, run, oom, time.perf_counter() + seconds)
    except TimeIsUpError:
        _print(f"Stopped after {seconds:.0f} s.")
    except KeyboardInterrupt:
        pass
    except Exception as reason:  # whatever the model, its data or its state after the failure raise
        kind = "" if isinstance(reason, RecordingError) else f"{type(reason).__name__}: "
        text = f"{kind}{' '.join(str(reason).split())[:600]}"
        _print(f"Not measured: {_NO_ROOM if memory_request(reason) else text}")


def _measure(error: BaseException, run: RecordedRun, oom: Oom, until: float) -> None:
    call, failed, why = _call_in(error), oom.batch_size, ""
    gc.collect()
    if call is None:
        raise RecordingError(
            "the failed step is none of `fit` or `train_on_batch`, so its model and data are "
            "unknown. Compile the model and call tb_memplugin.largest_batch_size(model, data)."
        )
    beyond = beyond_batch(run, oom)
    if beyond is not None:
        raise RecordingError(beyond)
    model, data = call["self"], _data_of(call)
    examples = Examples(data, max(SIZES))
    axes = _open_axes(model, data, examples)
    device = next(
        (one for one in checked_devices(model, not model.jit_compile) if one.name == oom.device),
        None,
    )
    if device is None or not (device.capacity_bytes and failed):
        raise RecordingError("it takes a device with a known capacity, and a failed batch size.")
    if model.jit_compile and not run.requests and not (oom.requests and oom.requests.planned):
        raise RecordingError(
            "the compiled step's requests are unknown: most often, memory ran out as its batch "
            "was made. Call tb_memplugin.largest_batch_size(model, data) in a new process."
        )
    if model.jit_compile:
        run = dataclasses.replace(
            run, ask=CompiledSteps(model, examples.batch(1), device.name, until)
        )
        why = "a compiled step that failed may have freed the variables that it was changing"
    else:
        run, examples = _recorded(model, examples, axes, oom)
    limit = device.capacity_bytes
    # not by the failure itself
    predictor = Predictor.of(run, device.name, run.ask).bounded_by(Evidence())
    if predictor.predict(Conditions(failed, limit)).fits:
        raise RecordingError(_UNLIKE)
    if axes:
        _print(f"Measured with inputs of {_written(examples, axes)}: larger ones need more.")
    unverified: list[BatchSizeAnswer] = []

    def told(answer: BatchSizeAnswer) -> None:
        unverified.append(answer)
        if time.perf_counter() >= until:
            raise TimeIsUpError

    try:
        trial = Trial(functools.partial(peak_of, model, examples, device.name), replicas_of(model))
        answer = largest_of(run, device, limit, trial, failed, why, told)
    except (TimeIsUpError, KeyboardInterrupt):
        for one in unverified[-1:]:
            _print_size(one)
        raise
    _print_size(answer)
    plan = plan_of_run(run, limit, device.name, failed)
    best = next((one for one in plan.options if one.fits), None)
    text, code = "none of the simulated changes fits.", ""
    if plan.fits is None:
        text = " ".join(plan.sentences)
    # else it is no more than the largest size
    if best is not None and "batch_size" not in best.kind:
        text = f"{best.sentence}, {best.peak_source} peak {format_bytes(best.peak_bytes)}."
        code = plan.code
    _print(f"\nPlan for batch size {failed:,}: {text}", *code.splitlines())


def _recorded(
    model: Any, examples: Examples, axes: Sequence[tuple[int, int]], oom: Oom
) -> tuple[RecordedRun, Examples]:
    """A run of steps with few examples that are as large as those of the failed step, and these.

    Their lengths follow from the request that failed, and steps with these must request it, too: a
    tensor is in proportion to a length, or to its square."""

    def recorded(of: Examples) -> tuple[RecordedRun, float | None]:
        for _ in range(2):
            run, _ = recorded_steps(model, of.batch(max(SIZES)), oom.batch_size)
            # most often, operations in very unlike orders
            if not Predictor.of(run, oom.device).reason_against(Conditions()):
                break
        steps = [one for one in run.requests if one.device == oom.device]
        return run, stretch(steps, oom, {one.batch_size for one in steps})

    run, factor = recorded(examples)
    if not axes or factor is None or abs(factor - 1) <= MOST_DIFFERENT:
        return run, examples
    before, each = _written(examples, axes), len({axis for _, axis in axes})
    for power in (2 * each, each):  # the smaller ones first: the others may not fit
        resized = examples.resized(axes, factor ** (1 / power))
        if resized is None:
            continue
        run, rest = recorded(resized)
        if abs((rest or 0) - 1) <= MOST_DIFFERENT:
            after = _written(resized, axes)
            _print(f"The failed batch was unlike the first one: {after} instead of {before}.")
            return run, resized
    raise RecordingError(_UNLIKE)


def _open_axes(model: Any, data: Any, examples: Examples) -> list[tuple[int, int]]:
    """Array and axis of each dimension that may differ from batch to batch, beside the batch."""
    specs = getattr(data, "element_spec", None) or getattr(model, "inputs", ())
    arrays = zip(tf.nest.flatten(specs), examples.shapes, strict=False)
    return [
        (number, axis)
        for number, (spec, shape) in enumerate(arrays)
        if tf.TensorShape(spec.shape).rank == len(shape)
        for axis in range(1, len(shape))
        if spec.shape[axis] is None
    ]


def _written(examples: Examples, axes: Sequence[tuple[int, int]]) -> str:
    """The shape of the first array with an open axis."""
    return f"(batch, {', '.join(map(str, examples.shapes[axes[0][0]][1:]))})"


def _print_size(answer: BatchSizeAnswer) -> None:
    applied = Applied("batch_size", batch_size=answer.batch_size)
    _print(str(answer), *(["", code_of(applied, "", ())] if answer.batch_size else ()))


def _print(first: str, *lines: str) -> None:
    """Print on standard error, all lines but the first indented."""
    indented = [f"    {line}" if line else "" for line in lines]
    print(first, *indented, sep="\n", file=sys.stderr, flush=True)


def _call_in(error: BaseException) -> dict[str, Any] | None:
    """The arguments of the innermost training call in the frames of an exception. Keras removes its
    own frames, but for that of the function that removes them."""
    found = None
    for one in causes(error):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            name, local = frame.f_code.co_name, frame.f_locals
            if (
                name == "error_handler"
                and getattr(local.get("fn"), "__name__", "") in _TRAINS
                and "args" in local
            ):
                name, bound = local["fn"].__name__, inspect.signature(local["fn"]).bind
                local = bound(*local["args"], **local["kwargs"]).arguments
            if name in _TRAINS and isinstance(local.get("self"), keras.Model):
                found = dict(local)
    return found


def _data_of(call: Mapping[str, Any]) -> Any:
    """What the call trains on, or its first examples."""
    x = call.get("x")
    if isinstance(x, tf.data.Dataset) or hasattr(x, "__next__"):
        return x
    given = (
        x[0]
        if isinstance(x, keras.utils.PyDataset)
        else (x, call.get("y"), call.get("sample_weight"))
    )
    return tf.nest.map_structure(
        lambda leaf: leaf[: max(SIZES)], tuple(one for one in given if one is not None)
    )

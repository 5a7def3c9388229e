"""What a recorded run would need, and what makes it fit, asked in Python."""

from tb_memplugin.export.loading import RecordedRun
from tb_memplugin.fit import Globs, Plan, Predictor, WhatIf, capacity_bytes, checked_conditions, device_of, plan_for
from tb_memplugin.schema import Run, with_layers_of


def what_if(
    run: Run,
    *,
    batch_size: int | None = None,
    capacity: int | str | None = None,
    freeze: Globs | None = None,
    unfreeze: Globs | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
    device: str | None = None,
) -> WhatIf:
    """Predict what a recorded run would need under other conditions.

    The recorded steps are replayed first; only if that reproduces every address is anything predicted.

    Args:
        run: A run, as ``tb_memplugin.load(log_dir)[name]`` returns it.
        batch_size: Examples in a batch.
        capacity: The allocator's limit, in bytes or as a text such as ``"24GiB"``.
        freeze, unfreeze: Glob for whole paths of layers, such as ``"*/block1_*"``, or a list of globs; commas separate
            several in one text, and ``*`` also matches ``/``.
        optimizer: Name of a Keras optimizer in lower case, or ``momentum`` for SGD with momentum.
        precision: ``float32``, ``mixed_float16`` or ``mixed_bfloat16``.
        device: Device of the run; by default the first accelerator with recorded requests.

    Returns:
        The answer; `print` shows it. Its `prediction.method` is ``unknown`` if nothing can be predicted;
        `prediction.assumptions` then says why.

    Raises:
        RequestError: A condition is malformed, or a glob matches no layer with weights.
        NotFoundError: The run has no such device.
    """
    conditions = checked_conditions(batch_size, capacity, freeze, unfreeze, optimizer, precision)
    return predictor_of(run, device).what_if(conditions)


def predictor_of(run: Run, device: str | None) -> Predictor:
    return Predictor.of(*_on_device(run, device))


def _on_device(run: Run, device: str | None) -> tuple[Run, str]:
    """The run with the layers of the device's worker, and the device."""
    chosen = device_of(run, device)
    return with_layers_of(run, run.by_worker if isinstance(run, RecordedRun) else {}, chosen), chosen


def plan_of_run(run: Run, budget: int | str, device: str | None = None, batch_size: int | None = None) -> Plan:
    """The plan for a run, as `tb_memplugin.plan` returns it, with the same errors."""
    size = checked_conditions(batch_size).batch_size
    return plan_for(*_on_device(run, device), capacity_bytes(budget, "budget"), size)

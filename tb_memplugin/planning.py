"""`plan`: how a recorded run, or a model that was never trained, fits into a budget.

TensorFlow is imported only for a model."""

from typing import Any

from tb_memplugin.environment import keras_backend, why_unrecorded
from tb_memplugin.errors import RequestError
from tb_memplugin.export import plan_of_run
from tb_memplugin.fit import Plan
from tb_memplugin.schema import Run


def plan(
    run_or_model: Any,
    data: Any = None,
    *,
    budget: int | str,
    batch_size: int | None = None,
    device: str | None = None,
) -> Plan:
    """Find the cheapest change with which a training fits into a budget.

    ```python
    plan = tb_memplugin.plan(model, dataset, budget="8GiB")
    print(plan)
    ```

    Recomputation of segments, gradient accumulation, frozen layers, a smaller batch and others are
    simulated with a recorded step. For a model, `tb_memplugin.probe` records steps with small
    batches first and restores the model.

    Args:
        run_or_model: A run, as ``tb_memplugin.load(log_dir)[name]`` returns it, or a compiled Keras
            model.
        data: For a model, what it is trained on: a `tf.data.Dataset` of batches, or a tuple of
            arrays.
        budget: The most that the peak may be: bytes, or a text such as ``"8GiB"`` or ``"60%"`` of
            the capacity.
        batch_size: Examples in a batch; by default as recorded, or as in the dataset, or Keras's 32
            for arrays.
        device: Device of the run; by default the fullest accelerator with recorded requests.

    Returns:
        The plan; `print` shows it, and `remat` takes it. Its `fits` is None if nothing can be
        predicted; `sentences` then say why.

    Raises:
        RequestError: The budget or the batch size is malformed, or a model comes without data.
        NotFoundError: The run has no such device.
        RecordingError: The model cannot be probed."""
    if isinstance(run_or_model, Run):
        if data is not None:
            raise RequestError(
                "A run needs no data: plan(run, budget=...). Pass data with a model only."
            )
        return plan_of_run(run_or_model, budget, device, batch_size)
    if data is None:
        raise RequestError(
            "data is missing. Pass what the model is trained on: plan(model, data, budget=...)."
        )
    if why_unrecorded(on_jax=True) is not None:
        from tb_memplugin import off

        off.probe()
    from tb_memplugin import training

    run, trained_size = training.recorded_steps(run_or_model, data, batch_size)
    is_trained = keras_backend() != "jax"
    measure = training.MeasuredSteps(run_or_model, data) if is_trained else None
    return plan_of_run(run, budget, device, trained_size, measure)

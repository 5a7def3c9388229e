"""Plans in Python how a recorded training fits into a budget."""

from tb_memplugin.analysis.plan import plan_for
from tb_memplugin.analysis.plan_answer import Plan
from tb_memplugin.analysis.what_if_questions import capacity_bytes, device_of
from tb_memplugin.model import Run


def plan(run: Run, budget: int | str, *, device: str | None = None) -> Plan:
    """Find the cheapest change with which a recorded training fits into a budget.

    Recomputation of segments, gradient accumulation, a smaller batch and others are simulated with the recorded step.

    Args:
        run: A run, as ``tb_memplugin.load(log_dir)[name]`` returns it.
        budget: The most that the peak may be, in bytes or as a text such as ``"8GiB"``.
        device: Device of the run; by default the first accelerator with recorded requests.

    Returns:
        The plan; `print` shows it, and `remat` takes it. Its `fits` is None if nothing can be predicted; `sentences`
        then say why.

    Raises:
        RequestError: The budget is malformed.
        NotFoundError: The run has no such device.
    """
    return plan_for(run, device_of(run, device), capacity_bytes(budget, "budget"))

"""Plans how a recorded training fits into a budget."""

from tb_memplugin.analysis.plan import plan_for
from tb_memplugin.analysis.plan_answer import Plan
from tb_memplugin.analysis.what_if_questions import capacity_bytes, checked_conditions, device_of
from tb_memplugin.model import Run


def plan_of_run(run: Run, budget: int | str, device: str | None = None, batch_size: int | None = None) -> Plan:
    """The plan for a run, as `tb_memplugin.plan` returns it.

    Raises:
        RequestError: The budget or the batch size is malformed.
        NotFoundError: The run has no such device.
    """
    size = checked_conditions(batch_size, None, None, None, None, None).batch_size
    return plan_for(run, device_of(run, device), capacity_bytes(budget, "budget"), size)

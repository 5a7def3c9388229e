"""The findings on a run: sentences on memory that grows. Pure."""

from tb_memplugin.analysis.growth import find_growth
from tb_memplugin.analysis.host_memory import host_findings
from tb_memplugin.model import Run


def findings(run: Run) -> list[str]:
    """The run's findings, by device, and then on host memory by worker."""
    return [growth.sentence() for growth in find_growth(run)] + host_findings(run)

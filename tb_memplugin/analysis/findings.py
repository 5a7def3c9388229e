"""The findings on a run: sentences on memory that grows. Pure."""

from tb_memplugin.analysis.growth import find_growth
from tb_memplugin.analysis.host_growth import host_growth_of
from tb_memplugin.model import Run


def findings(run: Run) -> list[str]:
    """The run's findings, by device, and then on the host."""
    host = host_finding(run)
    return [growth.sentence() for growth in find_growth(run)] + ([] if host is None else [host])


def host_finding(run: Run) -> str | None:
    """The finding on host memory; None without one, and for a run of several processes."""
    growth = host_growth_of(run)
    return None if growth is None else growth.sentence()

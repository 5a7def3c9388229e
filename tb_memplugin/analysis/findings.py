"""The findings on a run: sentences on memory that grows, and on memory of what is no longer used. Pure."""

import dataclasses
from collections.abc import Mapping

from tb_memplugin.analysis.former import former_findings
from tb_memplugin.analysis.growth import find_growth
from tb_memplugin.analysis.host_memory import host_findings
from tb_memplugin.model import Run, full_device_name


def findings(by_worker: Mapping[str, Run]) -> list[str]:
    """The findings by device, and then on host memory by worker.

    Args:
        by_worker: Worker name to the run of that worker, with devices under their own names.
    """
    of_devices = [sentence for worker, run in by_worker.items() for sentence in device_findings(worker, run)]
    return of_devices + [sentence for run in by_worker.values() for sentence in host_findings(run)]


def device_findings(worker: str, run: Run) -> list[str]:
    """The findings on the devices of one worker."""
    return growth_findings(worker, run) + former_findings(run, worker)


def growth_findings(worker: str, run: Run) -> list[str]:
    """The findings on device memory of one worker that grows over the steps."""
    return [
        dataclasses.replace(growth, device=full_device_name(worker, growth.device)).sentence()
        for growth in find_growth(run)
    ]

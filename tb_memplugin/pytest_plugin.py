"""The plugin for pytest: the marker `limit_device_memory` bounds the peak of a device's memory during a test.

pytest imports this module at every start, so everything else is imported when the first marked test runs.
With ``TB_MEMPLUGIN=0`` marked tests run unbounded.
"""

from collections.abc import Generator
from typing import Any

import pytest

from tb_memplugin.cpu_allocator import take_back
from tb_memplugin.switch import is_off

take_back()

MARKER = "limit_device_memory"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(limit, device=None): fail the test if the peak of a device's memory exceeds limit, such as "
        "'512 MiB' or a number of bytes; by default of each GPU, or of the CPU without one.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure the peak of a marked test and compare it with the limit."""
    marker = item.get_closest_marker(MARKER)
    if marker is None or is_off():
        return (yield)
    from tb_memplugin.errors import MemoryPluginError

    try:
        limit = limit_device_memory(*marker.args, **marker.kwargs)
        limit.begin()
    except (MemoryPluginError, ImportError, TypeError) as error:
        pytest.fail(f"{MARKER} cannot measure: {error}", pytrace=False)
    try:
        result = yield
    finally:
        limit.end()
    try:
        exceeded = limit.exceeded()
    except MemoryPluginError as error:
        pytest.fail(f"{MARKER} cannot measure: {error}", pytrace=False)
    if exceeded:
        pytest.fail("\n".join(f"{MARKER}: {sentence}" for sentence in exceeded), pytrace=False)
    return result


def limit_device_memory(limit: Any, device: str | None = None) -> Any:
    """The limit of a marker with these arguments."""
    from tb_memplugin.recorder.device_limit import DeviceLimit

    return DeviceLimit(limit, device)

"""Directories that a test run makes once, and the address of a viewer on one."""

import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import harness
import pytest
from playwright.sync_api import Page


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], None]
) -> pathlib.Path:
    """A file or directory that the first worker of a test run makes and all of them read."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    made = base / name
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            part = base / f"{name}.part"
            make(part)
            part.rename(made)
    return made


def address_of_logdir(scope: Literal["session", "module"]) -> Any:
    """The fixture ``address``: address of a `page_server` on the fixture ``logdir``.

    Before a server goes, the page leaves its document: it would ask in vain, and the next test
    would fail.
    """

    @pytest.fixture(scope=scope)
    def address(logdir: pathlib.Path, watched: tuple[Page, object]) -> Iterator[str]:
        with harness.viewer(str(logdir)) as address:
            yield address
            watched[0].goto("about:blank")

    return address

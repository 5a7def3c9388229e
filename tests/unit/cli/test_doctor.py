"""Lines and exit codes of `tb-memplugin doctor`, for checks whose outcome is given."""

import pytest

from tb_memplugin.cli import doctor as checks
from tb_memplugin.cli import main

GOOD = checks.Check("memory map", True, "read")
BAD = checks.Check("allocator", False, "set TF_CPU_ALLOCATOR_USE_BFC=1")


@pytest.mark.parametrize(
    ("found", "code", "lines"),
    [
        ([GOOD], 0, ["ok  memory map: read"]),
        ([BAD, GOOD], 1, ["!!  allocator: set TF_CPU_ALLOCATOR_USE_BFC=1", "ok  memory map: read"]),
        ([GOOD, BAD], 1, ["ok  memory map: read", "!!  allocator: set TF_CPU_ALLOCATOR_USE_BFC=1"]),
    ],
)
def test_each_check_is_a_line_and_any_that_fails_gives_exit_code_1(found, code, lines, monkeypatch, capsys) -> None:
    monkeypatch.setattr(checks, "checks", lambda: iter(found))
    assert main(["doctor"]) == code
    assert capsys.readouterr().out.splitlines() == lines

"""The Python code of README and docs, page by page as it stands: a fresh process, a fresh directory, nothing set."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
from prepared_python import bare_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTINUES = re.compile(r"continues?\s+the\s+\[quick\s+start\]")
"""Words of a page whose examples use the quick start's model and data."""
NOT_RUN = {
    "docs/ci.md": 1,  # a test for pytest, which test_pytest_plugin.py runs
    "docs/tutorial.md": 2,  # a script with an argument and what asks about its run: test_tutorial.py types them
}
"""Number of blocks by page that do not run here; the comments say where they do."""
PANDAS = importlib.util.find_spec("pandas") is not None


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, in order; those that need pandas only where it is installed."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in found if PANDAS or "to_pandas" not in block]


def pages() -> list[str]:
    """README and the pages of docs with Python code, relative to the repository."""
    every = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in every if "```python" in path.read_text(encoding="utf-8")]


def test_only_listed_blocks_do_not_run() -> None:
    assert {page: len(blocks(page)) for page in pages() if page in NOT_RUN} == NOT_RUN


RUN = [
    pytest.param(page, marks=[] if page == "README.md" else [pytest.mark.long])
    for page in pages()
    if page not in NOT_RUN
]


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_as_it_stands(page: str, tmp_path: pathlib.Path) -> None:
    code = blocks(page)
    if CONTINUES.search((ROOT / page).read_text(encoding="utf-8")):
        code = [*blocks("README.md"), *code]
    (tmp_path / "page.py").write_text("\n".join(code), encoding="utf-8")
    # What a stranger looks at next: the quick start's run has breakdowns.
    for arguments, shown in (
        (["page.py"], ""),
        (["-m", "tb_memplugin", "inspect", "runs", "--run", "exp1"], "traced step"),
    ):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=bare_environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES=""),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr[-3000:]

"""demo/colab.ipynb, cell by cell in a real kernel, with the `%tensorboard` magic."""

import json
import os
import pathlib
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import tb_memplugin

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "demo" / "colab.ipynb"
INSTALL = '%pip install --quiet "..[record]"'
START_SECONDS = 200


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, pathlib.Path, int]]:
    """The notebook with its outputs, the folder it ran in, and the port of the TensorBoard that it
    started.

    Two cells are changed: in place of the installation stands a check that the package is that of
    this checkout, and TensorBoard gets a free port.
    """
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    for cell in notebook.cells:
        if cell.source == INSTALL:
            cell.source = (
                f"import tb_memplugin\nassert tb_memplugin.__file__.startswith({str(ROOT)!r})"
            )
        cell.source = re.sub(
            r"^%tensorboard .*$", r"\g<0> --port " rf"{port}", cell.source, flags=re.MULTILINE
        )
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    # TensorBoard leaves the note with its process id in the folder for temporary files.
    own = {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    # The kernel must outlive the tests: when it ends, it ends TensorBoard.
    with client.setup_kernel(env={**os.environ, **own}):
        try:
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
            yield notebook, folder, port
        finally:
            for note in (folder / ".tensorboard-info").glob("pid-*.info"):
                os.kill(json.loads(note.read_text())["pid"], signal.SIGTERM)


def output(notebook: Any, cell: str) -> str:
    """What a cell printed and displayed."""
    (outputs,) = (one.outputs for one in notebook.cells if one.id == cell)
    return "".join(
        one.get("text", "") + one.get("data", {}).get("text/html", "") for one in outputs
    )


def test_it_installs_the_package_by_its_name_and_has_a_text_for_each_step() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert [cell.source for cell in cells if "pip" in cell.source and cell.cell_type == "code"] == [
        INSTALL
    ]
    assert re.search(
        r'^name = "tb-memplugin"$',
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    kinds = [cell.cell_type for cell in cells]
    assert kinds[0] == "markdown" and kinds[1:] == ["markdown", "code"] * (len(kinds) // 2)
    # Outputs and counts would change with every execution.
    assert all(
        not cell.outputs and cell.execution_count is None
        for cell in cells
        if cell.cell_type == "code"
    )


@pytest.mark.long
def test_the_magic_starts_a_tensorboard_that_shows_the_run(
    executed: tuple[Any, pathlib.Path, int],
) -> None:
    notebook, _, port = executed
    assert "<iframe" in output(notebook, "tab")
    deadline = time.monotonic() + START_SECONDS
    names: list[str] = []
    while not names and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(
                f"http://localhost:{port}/data/plugin/tb_memplugin/runs", timeout=5
            ) as answer:
                names = [run["run"] for run in json.load(answer)["runs"]]
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    assert names == ["colab"]


@pytest.mark.long
def test_it_recorded_what_unfreezing_changed(executed: tuple[Any, pathlib.Path, int]) -> None:
    _, folder, _ = executed
    run = tb_memplugin.load(folder / "runs")["colab"]
    # 640 images in batches of 32, twice 2 epochs
    assert run.samples.step[run.samples.phase == 0].tolist() == list(range(80))
    # 3 × 3 kernels and biases of the backbone, float32
    backbone = sum(
        4 * (9 * before * after + after)
        for before, after in [(3, 32), (32, 64), (64, 128), (128, 256)]
    )
    trained = [
        sum(layer.trainable_weight_bytes for layer in table.layers) for table in run.layer_tables
    ]
    assert trained[-1] - trained[0] == backbone
    assert {one.step // 40 for one in run.snapshots} == {0, 1}


@pytest.mark.long
def test_the_figures_that_it_prints_sum_to_the_bytes_in_use(
    executed: tuple[Any, pathlib.Path, int],
) -> None:
    printed = re.findall(r"^(.+?) +([0-9.]+) MiB$", output(executed[0], "python"), re.MULTILINE)
    *parts, (last, total) = [(name, float(size)) for name, size in printed]
    assert last == "in use at the peak" and len(parts) > 3
    assert abs(sum(size for _, size in parts) - total) <= 0.005 * (len(parts) + 1)

"""Every code block of README and docs runs as it stands, page by page: a fresh process, a fresh
directory, nothing set.

A block after a comment ``<!-- not run: REASON -->`` does not run here; the comments are counted. A
block of output is compared with what the block above it prints.
"""

import gzip
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from dump_cases import make_dump
from log_cases import make_log
from prepared_python import shell_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = pathlib.Path(__file__).with_name("page_runner.py")
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) " r"-->\n)?```(?P<kind>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
CONTINUES = re.compile(r"continues?\s+the\s+\[quick\s+start\]")
"""Words of a page whose examples use the quick start's model and data."""
NOT_RUN = {
    "README.md": 2,
    "docs/ci.md": 1,
    "docs/command_line.md": 2,
    "docs/development/gpu.md": 12,
    "docs/development/testing.md": 2,
    "docs/export.md": 6,
    "docs/fitting.md": 1,
    "docs/fitting_tutorial.md": 1,
    "docs/getting_started.md": 1,
    "docs/tutorial.md": 1,
}
"""Number of blocks by page that do not run."""
DRAWN = {"mermaid"}
"""Kinds of blocks without code."""
READS = {
    "docs/agents.md",
    "docs/command_line.md",
    "docs/export.md",
    "docs/keras_on_a_gpu.md",
    "docs/what_if.md",
}
"""Pages that continue the quick start, but only read the run that it has recorded: that is recorded
once for all."""
TYPED = {"docs/tutorial.md", "docs/fitting_tutorial.md"}
"""Pages whose blocks test_tutorial.py runs: they save files and fail on purpose."""
NEEDS = {"to_pandas": "pandas", "--to tables": "pyarrow"}
"""What a block contains to the package without which it does not run."""
TRAIN = """
import sys

if "--logdir" in sys.argv:
    import tb_memplugin
import keras, numpy as np

model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", "mse")
callbacks = []
if "--logdir" in sys.argv:
    callbacks = [tb_memplugin.MemoryCallback(sys.argv[sys.argv.index("--logdir") + 1] + "/small")]
model.fit(
    np.random.rand(512, 32), np.random.rand(512, 10), epochs=2, verbose=0, callbacks=callbacks
)
"""


def pages() -> list[str]:
    """README and the pages of docs with blocks, relative to the repository."""
    every = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [
        path.relative_to(ROOT).as_posix()
        for path in every
        if "```" in path.read_text(encoding="utf-8")
    ]


def blocks(page: str) -> list[list[str]]:
    """Kind, code and shown output of the blocks that run; a block that needs a package of `NEEDS`
    only with it."""
    absent = [part for part, package in NEEDS.items() if importlib.util.find_spec(package) is None]
    found: list[list[str]] = []
    for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        if block["kind"] == "text":
            if block["reason"] is None:
                found[-1][2] = block["code"]
        elif (
            block["reason"] is None
            and block["kind"] not in DRAWN
            and not any(part in block["code"] for part in absent)
        ):
            found.append([block["kind"], block["code"], ""])
    return found


def test_every_block_runs_or_says_why_not() -> None:
    marks = {
        page: len(
            [
                block
                for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
                if block["reason"]
            ]
        )
        for page in pages()
    }
    assert {page: count for page, count in marks.items() if count} == NOT_RUN
    assert all(
        (ROOT / page).read_text(encoding="utf-8").count("<!-- not run") == marks[page]
        for page in marks
    )
    kinds = {page: {kind for kind, _, _ in blocks(page)} for page in pages()}
    assert {kind for found in kinds.values() for kind in found} == {"python", "sh"}, kinds


def test_each_usual_question_has_a_command_and_what_it_prints() -> None:
    # GIVEN the questions of how_do_i.md, whose blocks run below after the quick start's
    page = (ROOT / "docs" / "how_do_i.md").read_text(encoding="utf-8")
    assert CONTINUES.search(page)
    questions = re.split(r"^## \d\. ", page, flags=re.MULTILINE)[1:]
    # THEN each is answered in the terminal as well: commands, and a line that they print
    answers = [
        re.findall(r"^```sh\n(?:tb-memplugin " r".*\n)+```\n\n```text\n.+\n", text, re.M)
        for text in questions
    ]
    assert [len(found) for found in answers] == [1] * 9


def prepare(page: str, directory: pathlib.Path) -> None:
    """Writes the files that a page speaks of as the reader's own."""
    (directory / "mypackage").mkdir()
    for name in ("train.py", "mypackage/train.py"):
        (directory / name).write_text(TRAIN, encoding="utf-8")
    if page in ("docs/out_of_memory.md", "docs/how_do_i.md"):
        (directory / "job.log").write_text("\n".join(make_log("2.21")), encoding="utf-8")
        (directory / "dump_GPU_0_bfc.1").write_bytes(make_dump())
        profile = ROOT / "tests" / "fixtures" / "profiles" / "graph.xplane.pb.gz"
        (directory / "step.xplane.pb").write_bytes(gzip.decompress(profile.read_bytes()))


RUN = [
    pytest.param(page, marks=[] if page == "README.md" else [pytest.mark.long])
    for page in pages()
    if page not in TYPED and blocks(page)
]


def run_blocks(code: list[list[str]], directory: pathlib.Path) -> None:
    """Runs blocks in a fresh process and compares their output."""
    (directory / "blocks.json").write_text(json.dumps(code), encoding="utf-8")
    command, environment = [sys.executable, str(RUNNER), "blocks.json"], shell_environment(ROOT)
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.fixture(scope="session")
def quick_start(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory in which the README's blocks have run."""
    directory = tmp_path_factory.mktemp("quick_start")
    # What a stranger looks at next: the run has breakdowns.
    look = ["python", "print(len(tb_memplugin.load('runs')['exp1'].snapshots) > 1)", "True\n"]
    run_blocks([*blocks("README.md"), look], directory)
    return directory


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_as_it_stands(
    page: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    if page == "README.md":
        assert (request.getfixturevalue("quick_start") / "runs" / "exp1").is_dir()
        return
    code = blocks(page)
    prepare(page, tmp_path)
    if page in READS:
        shutil.copytree(request.getfixturevalue("quick_start") / "runs", tmp_path / "runs")
        code = [["python", "import tb_memplugin\n", ""], *code]
    elif CONTINUES.search((ROOT / page).read_text(encoding="utf-8")):
        code = [*blocks("README.md"), *code]
    run_blocks(code, tmp_path)

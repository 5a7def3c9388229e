"""The exact public names, and that looking at them costs nobody what they do not need."""

import subprocess
import sys

import pytest

import tb_memplugin
import tb_memplugin.summary


def test_the_public_names_are_exactly_these() -> None:
    assert tb_memplugin.__all__ == [
        "BatchSizeAnswer",
        "Exported",
        "FormatError",
        "MemoryCallback",
        "MemoryPluginError",
        "MemoryRecorder",
        "NewerFormatError",
        "NotFoundError",
        "Plan",
        "RecomputationError",
        "RecordedRun",
        "RecordingError",
        "RequestError",
        "Run",
        "Snapshot",
        "WhatIf",
        "__version__",
        "cut_points",
        "export_parquet",
        "largest_batch_size",
        "load",
        "memory_summary",
        "plan",
        "print_what_fits",
        "probe",
        "release_unused",
        "remat",
        "summary",
        "what_if",
    ]
    assert dir(tb_memplugin) == tb_memplugin.__all__
    assert all(getattr(tb_memplugin, name) is not None for name in tb_memplugin.__all__)
    assert tb_memplugin.summary.__all__ == ["allocator_snapshot", "layer_activations"]


def test_a_recorder_offers_exactly_these() -> None:
    offered = {name for name in dir(tb_memplugin.MemoryRecorder) if not name.startswith("_")}
    assert offered == {
        *(
            "begin_step",
            "close",
            "closed",
            "end_step",
            "flush",
            "set_epoch",
            "start",
            "step",
            "watch",
        ),
    }


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="MemoryCallback"):
        tb_memplugin.MemoryCalback  # noqa: B018


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (
            "import tb_memplugin; tb_memplugin.load(sys.argv[1]); tb_memplugin.export_parquet;"
            "import tb_memplugin.cli.commands, tb_memplugin.plugin",
            ("tensorflow", "keras", "pyarrow", "duckdb", "apache_beam"),
        ),
        ("import tb_memplugin.cli", ("tensorboard.program", "tensorflow", "numpy")),
        (
            "from tb_memplugin.plugin import MemoryPlugin; MemoryPlugin(None).get_plugin_apps()",
            ("tb_memplugin.server.routes",),
        ),
    ],
    ids=[
        "what exports need to read",
        "the page's server for commands",
        "the server before a request",
    ],
)
def test_what_is_not_needed_is_not_imported(
    code: str, names: tuple[str, ...], tmp_path: object
) -> None:
    code = f"import sys; {code}; print([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

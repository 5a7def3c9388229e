"""Adds to the site's pages what their Markdown cannot contain: the navigation, the API reference,
the sample report.

A comment such as ``<!-- site: reference -->`` marks the place in a page. On a code forge the
comments are invisible.
"""

import dataclasses
import inspect
import pathlib
import types
import typing
from collections.abc import Iterator

from sphinx.application import Sphinx

import tb_memplugin
import tb_memplugin.schema
from tb_memplugin.device_contents import CategorySum, DeviceContents, LayerSum, MemorySummary
from tb_memplugin.export.loading import Runs
from tb_memplugin.fit import Conditions, FailedRequest, Prediction, Reproduced

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAVIGATION = {
    "Start": (
        "docs/getting_started",
        "docs/tutorial",
        "docs/understand_the_numbers",
        "docs/how_do_i",
        "docs/keras_on_a_gpu",
        "docs/cpu_and_gpu",
        "docs/troubleshooting",
        "docs/sample_report",
    ),
    "Tasks": (
        "docs/recording",
        "docs/out_of_memory",
        "docs/what_if",
        "docs/fitting",
        "docs/fitting_tutorial",
        "docs/recomputation",
        "docs/ci",
        "docs/export",
    ),
    "Reference": (
        "docs/views",
        "docs/command_line",
        "docs/agents",
        "docs/api",
        "docs/reference",
        "tb_memplugin/server/http_api",
        "docs/glossary",
        "docs/platform",
        "docs/limits",
    ),
    "Measured": ("docs/advice", "docs/accuracy"),
    "Advice": tuple(
        f"docs/advice/{path.stem}" for path in sorted((ROOT / "docs" / "advice").glob("*.md"))
    ),
    "Development": (
        *(
            "CONTRIBUTING",
            "docs/development/architecture",
            "docs/development/memory_map",
            "docs/development/recorder",
            "docs/development/reading_limits",
            "docs/development/testing",
            "docs/development/process",
            "docs/development/recomputation",
            "docs/development/programs",
            "docs/development/gpu",
        ),
        "CHANGELOG",
    ),
}
"""Pages by their caption in the sidebar. Sphinx warns of every page that is missing here."""

REFERENCE = {
    "Recording": (
        "MemoryCallback",
        "MemoryRecorder",
        "memory_summary",
        "release_unused",
        "summary",
    ),
    "Predictions": (
        "what_if",
        "probe",
        "largest_batch_size",
        "print_what_fits",
        "WhatIf",
        "BatchSizeAnswer",
    ),
    "Recomputation": ("plan", "remat", "cut_points", "Plan"),
    "Runs": ("load", "RecordedRun", "Run", "Snapshot"),
}
"""Public names by their heading. The errors have a heading of their own; new names stand last until
they are here."""
INTERNAL = ("Session", "SessionInfo")
"""Classes of the model that a run does not lead to."""
LED_TO = {
    "Recording": (MemorySummary, DeviceContents, CategorySum, LayerSum),
    "Predictions": (Prediction, Conditions, FailedRequest, Reproduced),
    "Runs": (Runs,),
}
"""Classes under each heading that public names lead to."""

SAMPLE_REPORT = """<p><a href="../sample_report.html">Open the report on a page of its own</a></p>
<iframe class="sample-report" src="../sample_report.html" title="Sample report"></iframe>
"""


def navigation(pages: set[str]) -> str:
    """Hidden tables of contents: Furo shows them in the sidebar."""
    return "\n".join(
        "\n".join(
            (
                "",
                "```{toctree}",
                ":hidden:",
                f":caption: {caption}",
                "",
                *(name for name in names if name in pages),
            )
        )
        + "\n```\n"
        for caption, names in NAVIGATION.items()
    )


def reference() -> str:
    """Directives for everything in `tb_memplugin.__all__`, and for the classes that these names
    lead to."""
    offered = {
        name: getattr(tb_memplugin, name)
        for name in tb_memplugin.__all__
        if not name.startswith("__")
    }
    errors = tuple(name for name, value in offered.items() if _is_error(value))
    listed = {*errors, *(name for names in REFERENCE.values() for name in names)}
    sections = {
        **REFERENCE,
        "Errors": errors,
        "More": tuple(name for name in offered if name not in listed),
    }
    model = [
        value
        for _, value in sorted(vars(tb_memplugin.schema).items())
        if inspect.isclass(value) and dataclasses.is_dataclass(value)
    ]
    contents = (one for one in model if one.__name__ not in {*offered, *INTERNAL})
    led_to = {**LED_TO, "Runs": (*LED_TO["Runs"], *contents)}
    text = []
    for heading, names in sections.items():
        entries = [_entry(f"tb_memplugin.{name}", offered[name]) for name in names]
        entries += [
            _entry(f"{one.__module__}.{one.__name__}", one) for one in led_to.get(heading, ())
        ]
        text += [f"## {heading}", *entries] if entries else []
    return "\n\n".join([*text, "## Types", *_types()])


def _types() -> Iterator[str]:
    """What the names of types stand for in the lists of fields."""
    yield (
        "`Integers` and `Floats` are NumPy arrays of `int64` and `float64`. In `Integers`, "
        "`MISSING` is −2⁶³."
    )
    for name, value in sorted(vars(tb_memplugin.schema).items()):
        if typing.get_origin(value) is typing.Literal:
            yield f"`{name}`: " + ", ".join(f"`{one}`" for one in typing.get_args(value))


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: object) -> str:
    """The directive for a public name."""
    heading, members = "", ["   :members:"]
    if isinstance(value, types.ModuleType):
        heading, kind = f"### {name}\n\n", "automodule"
    elif not inspect.isclass(value):
        kind, members = "autofunction", []
    elif _is_error(value):
        kind, members = "autoexception", ["   :show-inheritance:"]
    else:
        kind = "autoclass"
        # `Attributes` of the docstring are the members
        members = [] if dataclasses.is_dataclass(value) else members
    return heading + "\n".join(["```{eval-rst}", f".. {kind}:: {name}", *members, "```"])


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the parts into the text of a page."""
    if page == app.config.root_doc:
        source[0] += navigation(app.env.found_docs)
    source[0] = source[0].replace("<!-- site: sample report -->", SAMPLE_REPORT)
    if "<!-- site: reference -->" in source[0]:
        source[0] = source[0].replace("<!-- site: reference -->", reference())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

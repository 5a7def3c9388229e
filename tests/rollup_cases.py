"""Roll-ups as they were written, and what they say computed from the history of the same run."""

import os
import pathlib
from typing import Any

import numpy as np

from tb_memplugin.events.frames.metadata import parse_tag, run_name
from tb_memplugin.model import MISSING, PHASES, Run
from tb_memplugin.model.rollup import Rollup
from tb_memplugin.reader.decode.decoding import decode_tag
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.limits import Room

SPAN_FIGURES = ("peak_bytes", "peak_step")


def rollups_of(logdir: str | os.PathLike[str], worker: str = "") -> list[tuple[str, int, Rollup]]:
    """Every roll-up under a directory: its session, the bytes of its frame, and what it says; in order of writing."""
    source = FileSource(logdir)
    found = []
    for run, tags in source.listing().items():
        parsed = sorted(tag for text in tags if (tag := parse_tag(text)) is not None and tag.stream == "rollups")
        contents = {content.tag: content for content in source.read({run: [str(tag) for tag in parsed]})}
        for tag in parsed if run_name(run)[1] == worker else ():
            decoded = decode_tag(tag, contents[str(tag)], Room(1 << 30, 1 << 30))
            assert not decoded.damage and decoded.newer is None
            sizes = [len(frame.data) for frame in contents[str(tag)].frames]
            found += [(tag.session, size, piece.value) for size, piece in zip(sizes, decoded.pieces, strict=True)]
    return found


def last_rollup(logdir: pathlib.Path, worker: str = "") -> Rollup:
    return rollups_of(logdir, worker)[-1][2]


def spans_of(rollup: Rollup) -> dict[str, list[dict[str, Any]]]:
    """The spans of each device as plain values."""
    spans = rollup.spans
    return {
        device.name: [
            {
                "phase": PHASES[int(spans.phase[at])],
                "steps": (int(spans.first_step[at]), int(spans.last_step[at])),
                **{name: int(getattr(spans, name)[row, at]) for name in SPAN_FIGURES},
            }
            for at in range(len(spans))
        ]
        for row, device in enumerate(rollup.devices)
    }


def spans_of_history(run: Run, rollup: Rollup) -> dict[str, list[dict[str, Any]]]:
    """The same from the samples of the run: NumPy's maxima of every sample."""
    samples, spans = run.samples, rollup.spans
    expected: dict[str, list[dict[str, Any]]] = {}
    for device in rollup.devices:
        figures = samples.devices[device.name]
        peaks = np.maximum(figures.peak_bytes, figures.in_use_bytes)
        rows_of = []
        for at in range(len(spans)):
            steps = int(spans.first_step[at]), int(spans.last_step[at])
            rows = (samples.phase == spans.phase[at]) & (samples.step >= steps[0]) & (samples.step <= steps[1])
            known = rows & (peaks != MISSING)
            highest = int(peaks[known].max())
            rows_of.append(
                {
                    "phase": PHASES[int(spans.phase[at])],
                    "steps": (int(samples.step[rows].min()), int(samples.step[rows].max())),
                    "peak_bytes": highest,
                    "peak_step": int(samples.step[known & (peaks == highest)].min()),
                }
            )
        expected[device.name] = rows_of
    return expected

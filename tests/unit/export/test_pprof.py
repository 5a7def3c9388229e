"""Profiles for pprof, decoded with the message that TensorFlow's wheel has of pprof's ``profile.proto``."""

import collections
import gzip
import importlib.util
import pathlib
from typing import Any

import pytest
from export_cases import FIXTURES, TIMELINE_STEPS, recorded_ledger
from reading_cases import MIB, make_timeline

from tb_memplugin.export.pprof import pprof
from tb_memplugin.export.steps import step_timelines

PROTO = "tsl/profiler/protobuf/profile_pb2.py"


@pytest.fixture(scope="module")
def message() -> Any:
    """The message, without an import of TensorFlow."""
    found = importlib.util.find_spec("tensorflow")
    places = [] if found is None else [pathlib.Path(place) / PROTO for place in found.submodule_search_locations or ()]
    path = next((path for path in places if path.exists()), None)
    if path is None:
        pytest.skip("this TensorFlow has no profile.proto")
    spec = importlib.util.spec_from_file_location("profile_pb2", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Profile


class Profile:
    """A decoded profile.

    Attributes:
        samples: (frames from the leaf on, labels, value by type); a frame is name, file and line.
    """

    def __init__(self, message: Any, content: bytes) -> None:
        self.raw = message.FromString(gzip.decompress(content))
        texts = self.raw.string_table
        assert texts[0] == "" and len(set(texts)) == len(texts)
        functions = {one.id: (texts[one.name], texts[one.filename]) for one in self.raw.function}
        locations = {
            one.id: [(*functions[line.function_id], line.line) for line in one.line] for one in self.raw.location
        }
        assert 0 not in locations and 0 not in functions
        self.types = [(texts[one.type], texts[one.unit]) for one in self.raw.sample_type]
        self.samples = [
            (
                [frame for location in sample.location_id for frame in locations[location]],
                {texts[label.key]: texts[label.str] for label in sample.label},
                dict(zip((name for name, _ in self.types), sample.value, strict=True)),
            )
            for sample in self.raw.sample
        ]
        self.default = texts[self.raw.default_sample_type]
        self.comments = [texts[at] for at in self.raw.comment]


def test_a_known_step_is_a_profile(message: Any) -> None:
    timeline = make_timeline(3)
    content = pprof("small", timeline)
    profile = Profile(message, content)
    assert profile.types == [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]
    assert profile.default == "inuse_space"
    assert profile.comments == ["tb_memplugin: run small, step 3, phase train, device CPU:0"]
    assert (profile.raw.time_nanos, profile.raw.duration_nanos) == (round(timeline.wall_time * 1e9), 1_800_000)
    relu = next(one for one in profile.samples if one[1]["category"] == "activations")
    assert relu[0] == [
        ("model/backbone/Relu", "train.py", 42),
        ("model/backbone", "", 0),
        ("model", "", 0),
    ]
    assert relu[1] == {"category": "activations", "shape": "[128,204799] float32"}
    size = 100 * MIB - 512
    assert relu[2] == {"alloc_objects": 1, "alloc_space": size, "inuse_objects": 1, "inuse_space": size}
    # what was there before has no allocation in the step
    weights = [one for one in profile.samples if one[1]["category"] == "weights"]
    assert {one[0][0][0] for one in weights} == {"allocated before the step"}
    assert all(one[2]["alloc_space"] == 0 and one[2]["inuse_space"] > 0 for one in weights)
    # AND the same step always has the same bytes
    assert pprof("small", timeline) == content


@pytest.mark.parametrize("step", [TIMELINE_STEPS[0], TIMELINE_STEPS[-1]])
def test_samples_of_a_recorded_step_sum_to_its_ledger(message: Any, step: int) -> None:
    name, (timeline,) = step_timelines(str(FIXTURES), "out_of_memory", step)
    profile = Profile(message, pprof(name, timeline))
    found: collections.Counter[tuple[str | None, str]] = collections.Counter()
    for frames, labels, values in profile.samples:
        layer = None if frames[1][0] == "not tied to a layer" else frames[1][0]
        found[layer, labels["category"]] += values["inuse_space"]
    assert +found == recorded_ledger(timeline)
    # AND what was allocated in the step are the bytes and the number of the rows that begin in it
    begun = timeline.start > 0
    assert sum(values["alloc_space"] for *_, values in profile.samples) == timeline.bytes[begun].sum()
    assert sum(values["alloc_objects"] for *_, values in profile.samples) == timeline.count[begun].sum()
    lines = {frame[1:] for frames, *_ in profile.samples for frame in frames if frame[1]}
    assert {f"{file}:{line}" for file, line in lines} <= set(timeline.lines) and lines

"""The scenario `own_profiler` reads a profile as XProf does: the same recorded profiles through
XProf's converter."""

import gzip
import json
import pathlib

import pytest
from child import run_child

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILES = sorted((ROOT / "tests/fixtures/profiles").glob("*.xplane.pb.gz"))

CODE = """
import pathlib
sys.path.insert(0, sys.argv[1])
import own_profiler
answer([own_profiler.read_profile(pathlib.Path(path)) for path in sys.argv[2:]])
"""


def test_the_scenario_reads_a_profile_as_xprof_does(tmp_path: pathlib.Path) -> None:
    converter = pytest.importorskip("xprof.convert.raw_to_tool_data")
    paths = []
    for profile in PROFILES:
        path = tmp_path / profile.stem / "memory.xplane.pb"
        path.parent.mkdir()
        path.write_bytes(gzip.decompress(profile.read_bytes()))
        paths.append(str(path))
    assert len(paths) == 3
    for path, figures in zip(
        paths, run_child(CODE, str(ROOT / "demo/scenarios"), *paths), strict=True
    ):
        data = converter.xspace_to_tool_data([path], "memory_profile", {})[0]
        (allocator,) = json.loads(data)["memoryProfilePerAllocator"].values()
        assert figures["peak"] == int(allocator["profileSummary"]["peakStats"]["peakBytesInUse"])
        # XProf's name for what no event accounts for
        unknown = [
            int(one["allocationBytes"])
            for one in allocator["specialAllocations"]
            if one["tfOpName"] == "unused preallocated device memory"
        ]
        assert figures["without_an_owner"] == sum(unknown)

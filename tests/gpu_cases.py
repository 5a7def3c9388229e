"""Steps that were recorded on an NVIDIA H200; ``tests/fixtures/make_gpu_recordings.py`` says
how."""

import functools
import gzip
import json
import pathlib
import sys
from typing import Any

from tb_memplugin.attribution import AttributedStep
from tb_memplugin.importers import read_traces
from tb_memplugin.schema import AllocationTrace, TraceFacts

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
TRUTH: dict[str, Any] = json.loads((FIXTURES / "gpu" / "truth.json").read_text())
NAMES = sorted(TRUTH["recordings"])
GRAPH, XLA = ([name for name in NAMES if f"_{mode}_" in name] for mode in ("graph", "xla"))


@functools.cache
def recorded(name: str) -> tuple[AllocationTrace, TraceFacts]:
    sys.path.insert(0, str(FIXTURES))
    try:
        import gpu_facts
    finally:
        sys.path.remove(str(FIXTURES))
    traces = read_traces(gzip.decompress((FIXTURES / "gpu" / f"{name}.xplane.pb.gz").read_bytes()))
    facts = json.loads(gzip.decompress((FIXTURES / "gpu" / f"{name}.facts.json.gz").read_bytes()))
    (trace,) = (trace for trace in traces if trace.device == "GPU:0")
    return trace, gpu_facts.from_json(facts)


@functools.cache
def attributed(name: str) -> AttributedStep:
    limit = TRUTH["capacity_bytes"]
    return AttributedStep(
        *recorded(name), step=0, phase="train", wall_time=0.0, capacity_bytes=limit
    )

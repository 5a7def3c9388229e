"""Frames of the parts of host memory: what is written is read, and hostile numbers are refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tb_memplugin.errors import FormatError
from tb_memplugin.events import codec
from tb_memplugin.events.host_records import host_frame, read_host
from tb_memplugin.model import HOST_COLUMNS, MISSING, HostSamples


def make_host() -> HostSamples:
    return HostSamples.of(
        {
            "step": [3, 900],
            "phase": [0, 1],
            "wall_time": [1.5, 2.5],
            "resident_bytes": [1000, 2000],
            "file_bytes": [300, 300],
            "shared_memory_bytes": [0, 10],
            "pinned_pool_bytes": [MISSING, 40],
            "cpu_pool_bytes": [MISSING, 500],
            "python_objects_bytes": [200, 200],
            "c_heap_bytes": [5000, MISSING],
            "c_heap_free_bytes": [1, MISSING],
            "tf_data_bytes": [MISSING, 0],
        }
    )


def test_rows_survive_the_round_trip() -> None:
    host = make_host()
    read = read_host(codec.decode(codec.encode(host_frame(host, 0))))
    for name in HOST_COLUMNS:
        assert getattr(read, name).tolist() == getattr(host, name).tolist()
    assert read.other_bytes().tolist() == [500, 950]


@pytest.mark.parametrize(
    "changed",
    [
        {"resident_bytes": np.array([499, 2000])},  # smaller than its parts
        {"file_bytes": np.array([-1, 300])},
        {"c_heap_bytes": np.array([2**60, 0])},
        {"phase": np.array([0, 9])},
        {"step": np.array([-1, 3])},
        {"wall_time": np.array([0.0, np.inf])},
        {"python_objects_bytes": np.array([0.5, 1.0])},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_hostile_numbers_are_refused(changed: dict[str, Any]) -> None:
    frame = host_frame(make_host(), 0)
    table = {**frame.tables["host"], **changed}
    with pytest.raises(FormatError):
        read_host(dataclasses.replace(frame, tables={"host": table}))


def test_a_missing_column_is_refused() -> None:
    frame = host_frame(make_host(), 0)
    table = {name: column for name, column in frame.tables["host"].items() if name != "tf_data_bytes"}
    with pytest.raises(FormatError):
        read_host(dataclasses.replace(frame, tables={"host": table}))

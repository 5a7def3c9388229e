"""The session of a failure, when a later session repeats its steps."""

import dataclasses
import pathlib
import time

import pytest
from reading_cases import DEVICE, make_oom, make_samples
from requests_cases import make_table, make_traced

from tb_memplugin.errors import NotFoundError
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.read import BASIC, REQUESTS
from tb_memplugin.storage.write import RunWriter


def write_session(directory: pathlib.Path, failed: bool) -> float:
    """Write a session of nine steps, which end now; return when they ended."""
    writer, now = RunWriter(directory, versions={}), time.time()
    writer.layer_table(make_table())
    samples = make_samples(range(9), [100] * 9)
    writer.samples(dataclasses.replace(samples, wall_time=now - 1e-6 * (9 - samples.step)))
    for one in make_traced().values():
        writer.requests(dataclasses.replace(one.requests, wall_time=now - 1e-6 * (9 - one.requests.step)))
    if failed:
        writer.oom(dataclasses.replace(make_oom(9), wall_time=now))
    writer.close()
    return now


def test_the_session_has_the_steps_that_a_later_one_repeats(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "run"
    failed_at = write_session(directory, failed=True)
    write_session(directory, failed=False)
    reader, source = Reader(), FileSource(tmp_path)
    loaded, tags = reader.run(source, "run", {*BASIC, REQUESTS}), reader.tags(source, "run")
    assert min(one.wall_time for one in loaded.run.requests) > failed_at  # what the run shows is of the second one
    (oom,) = loaded.run.ooms
    run, own = reader.failed_session(source, tags, loaded, oom)
    assert own.device == DEVICE and own.wall_time == oom.wall_time
    assert [one.step for one in run.requests] == list(make_traced())
    assert max(one.wall_time for one in run.requests) <= failed_at
    with pytest.raises(NotFoundError, match="no session of the failed allocation"):
        reader.failed_session(source, tags, loaded, dataclasses.replace(oom, identifier="other"))

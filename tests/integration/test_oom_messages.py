"""Which exceptions are failed allocations, and that a dump is read before it is deleted."""

import os
import threading
import time
import types
import weakref
from typing import Any

import pytest
import tensorflow as tf
from dump_cases import make_dump

from tb_memplugin.importers.oom_log import Request
from tb_memplugin.recorder.devices.statistics import Device
from tb_memplugin.recorder.failure.failure_maps import VARIABLE, FailureMaps, dump_files
from tb_memplugin.recorder.failure.failures import RaisedError, memory_request
from tb_memplugin.recorder.failure.post_mortems import OomWatch, Place
from tb_memplugin.schema import Oom
from tb_memplugin.schema.trace import TraceFacts

# As TensorFlow 2.21 reports it on a GPU.
NO_ALGORITHM = """Graph execution error:

Detected at node unet_1/conv2d_transpose_2_1/conv_transpose defined at (most recent call last):
No algorithm worked!  Error messages:
  Profiling failure on CUDNN engine eng25{}: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16.00MiB. \
[tf-allocator-allocation-error='']
  Profiling failure on CUDNN engine eng0{}: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 232.01MiB. \
[tf-allocator-allocation-error='']
     [[{{node unet_1/conv2d_transpose_2_1/conv_transpose}}]] [Op:__inference_multi_step_on_iterator_6273]"""


def test_a_convolution_without_scratch_space_for_any_algorithm_ran_out_of_memory() -> None:
    found = memory_request(tf.errors.NotFoundError(None, None, NO_ALGORITHM))
    assert found == Request(op="unet_1/conv2d_transpose_2_1/conv_transpose", trials=True)
    for other in ("No algorithm worked! Error messages:\n  INTERNAL: CUDNN_STATUS_NOT_SUPPORTED", "Key a not found"):
        assert memory_request(tf.errors.NotFoundError(None, None, other)) is None
    assert memory_request(ValueError(NO_ALGORITHM)) is None


@pytest.fixture
def place(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)


def watch_into(written: list[Oom]) -> OomWatch:
    """A watch of a GPU without a model."""
    observer = types.SimpleNamespace(look=lambda device: (TraceFacts(), {}))
    watched: Any = types.SimpleNamespace(observer=observer, table=None, batch_size=None)
    maps: Any = types.SimpleNamespace(available=lambda device: False)
    device = Device("GPU:0", 1 << 20, None)
    return OomWatch(watched, FailureMaps([device], maps), lambda oom, _: written.append(oom))


@pytest.mark.usefixtures("place")
def test_the_background_thread_deletes_no_dump_that_is_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a failure with a dump, which takes a while to read
    written: list[Oom] = []
    watch = watch_into(written)
    at_failure = FailureMaps.at_failure
    ticks: list[threading.Thread] = []

    def slow(*arguments: Any) -> Any:
        ticks.append(threading.Thread(target=watch.tick, args=(None, None)))
        ticks[0].start()
        ticks[0].join(0.3)
        return at_failure(*arguments)

    monkeypatch.setattr(FailureMaps, "at_failure", slow)
    dump_files.acquire()
    try:
        path = f"{os.environ[VARIABLE]}_GPU_0_bfc.{int(time.time() * 1e6) + 1}"
        with open(path, "wb") as file:
            file.write(make_dump())
        # WHEN the background thread ticks meanwhile
        message = "OOM when allocating tensor with shape[64,1024] and type float on GPU:0 by allocator GPU_0_bfc"
        error = tf.errors.ResourceExhaustedError(None, None, message)
        request = memory_request(error)
        assert request is not None
        watch.on_error(
            RaisedError(request, weakref.ref(error), str(error), (), None, None, False), Place(3, "train", "step")
        )
        ticks[0].join()
        # THEN the post-mortem has the dump's figures, and the dump is deleted afterwards
        assert [oom.in_use_bytes for oom in written] == [1536]
        watch.tick(None, None)
        assert not os.path.exists(path)
    finally:
        dump_files.release()


@pytest.mark.usefixtures("place")
def test_a_dump_that_someone_else_deleted_costs_only_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Oom] = []
    watch = watch_into(written)
    dump_files.acquire()
    try:
        path = f"{os.environ[VARIABLE]}_GPU_0_bfc.{int(time.time() * 1e6) + 1}"
        with open(path, "wb") as file:
            file.write(make_dump())
        dumps = watch._maps.dumps(0.0)
        os.remove(path)
        assert watch._maps.at_failure("GPU:0", None, dumps) is None
    finally:
        dump_files.release()

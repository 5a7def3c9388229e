"""Failed allocations are seen as TensorFlow makes their exceptions, once, by the session that they belong to."""

import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from dump_cases import make_dump

from tb_memplugin.importers.oom_log import Request
from tb_memplugin.recorder.failure import raised as module
from tb_memplugin.recorder.failure.failure_maps import VARIABLE, DumpFiles
from tb_memplugin.recorder.failure.raised import RaisedErrors

MESSAGE = "OOM when allocating tensor with shape[1024] and type float on CPU:0 by allocator cpu [Op:Fill] name: "


class Session:
    """A session that notes what it receives."""

    closed = False

    def __init__(self, is_open: bool = False, began: float = 0.0) -> None:
        self.active_since = is_open, began
        self.received: list[Request] = []

    def close_without_waiting(self) -> None:
        self.closed = True

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        tf.errors.ResourceExhaustedError(None, None, MESSAGE)  # an error of the recorder's own is none of the program's
        self.received.append(request)


@pytest.fixture
def raised(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RaisedErrors]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "dump_files", DumpFiles())
    raised = RaisedErrors()
    yield raised
    raised._abandon()
    raised._remove()


def fail(message: str = MESSAGE, kind: Any = tf.errors.ResourceExhaustedError) -> None:
    kind(None, None, message)


def test_a_failure_is_seen_also_if_the_program_catches_it_and_on_any_thread(raised: RaisedErrors) -> None:
    session = Session()
    raised.add(session)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        raise tf.errors.ResourceExhaustedError(None, None, MESSAGE)
    assert [request.requested_bytes for request in session.received] == [4096]
    thread = threading.Thread(target=fail, args=[MESSAGE.replace("1024", "2048")])
    thread.start()
    thread.join()
    assert [request.requested_bytes for request in session.received] == [4096, 8192]
    # AND other errors are none
    fail("End of sequence", tf.errors.OutOfRangeError)
    fail("/data/BLOOM/x: too many open files")
    fail("logits and labels must be broadcastable", tf.errors.InvalidArgumentError)
    assert len(session.received) == 2


def test_an_error_that_wraps_the_last_one_is_the_same_failure(raised: RaisedErrors) -> None:
    session = Session()
    raised.add(session)
    fail()
    fail(f"Exception encountered when calling layer 'dense'.\n{MESSAGE}")
    assert len(session.received) == 1
    # AND a further failure with the same message has a dump of its own
    time.sleep(0.01)
    path = f"{module.dump_files._directory.path}/dump_cpu.{int(time.time() * 1e6)}"  # type: ignore[union-attr]
    pathlib.Path(path).write_bytes(make_dump(b"cpu"))
    fail()
    fail(f"Error in user-defined function: {MESSAGE}")
    assert len(session.received) == 2


def test_the_session_with_the_running_or_latest_step_gets_it(raised: RaisedErrors) -> None:
    sessions = [Session(False, 9.0), Session(True, 5.0), Session(), Session()]
    for number, expected in ((4, 1), (1, 0)):
        for session in sessions[:number]:
            raised.add(session)
        fail(MESSAGE.replace("1024", str(number)))
        assert [bool(session.received) for session in sessions].index(True) == expected
        for session in sessions:
            session.closed = True
            session.received.clear()
        raised.update()
        for session in sessions:
            session.closed = False
    # AND of those without a step the last one
    for session in sessions[2:]:
        raised.add(session)
    fail("failed to allocate memory")
    assert [len(session.received) for session in sessions] == [0, 0, 0, 1]


def test_a_session_is_opened_for_a_failure_that_has_none(raised: RaisedErrors) -> None:
    opened: list[Session] = []

    def opener() -> None:
        opened.append(Session())
        raised.add(opened[-1])

    raised.open_with(opener)
    fail("a wrong argument", tf.errors.InvalidArgumentError)
    assert opened == []
    fail()
    fail("failed to allocate memory")
    assert [len(session.received) for session in opened] == [2]


def test_a_dropped_session_receives_failures_until_the_next_one_is_made(raised: RaisedErrors) -> None:
    dropped, other, last = Session(), Session(), Session()
    raised.add(dropped)
    raised.keep(dropped)
    fail()
    assert len(dropped.received) == 1 and not dropped.closed
    raised.add(other)
    assert dropped.closed
    raised.keep(other)
    raised.keep(last)
    assert other.closed and not last.closed
    fail("failed to allocate memory")
    assert len(dropped.received) == 1


def test_without_sessions_nothing_is_left(raised: RaisedErrors) -> None:
    original = tf.errors.OpError.__init__
    session = Session()
    raised.add(session)
    files: Any = module.dump_files
    directory = pathlib.Path(files._directory.path)
    assert tf.errors.OpError.__init__ is not original and directory.is_dir()
    session.closed = True
    raised.update()
    assert tf.errors.OpError.__init__ is original and not directory.exists()
    fail()
    assert session.received == []


def test_a_fault_while_an_exception_is_made_changes_nothing(
    raised: RaisedErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session()
    raised.add(session)
    monkeypatch.setattr(session, "on_raised", None)
    with pytest.raises(tf.errors.ResourceExhaustedError) as error:
        raise tf.errors.ResourceExhaustedError(None, None, MESSAGE)
    assert str(error.value) == MESSAGE and error.value.__context__ is None

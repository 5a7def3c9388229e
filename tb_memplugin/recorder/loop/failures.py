"""`Failures`: takes the allocations that fail during a session, on the thread on which TensorFlow
makes the exception, and has their post-mortems written."""

import threading
import weakref
from typing import TYPE_CHECKING

from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import submit
from tb_memplugin.recorder.failure import Place, RaisedError, Replay, raised_now
from tb_memplugin.recorder.helper import Helper, TracedStep
from tb_memplugin.recorder.loop.steps import POST_MORTEMS
from tb_memplugin.schema import FailedDuring

if TYPE_CHECKING:
    from tb_memplugin.recorder.loop.session import Session

REPLAYS = "replays of failed steps"


class Failures:
    """The failures of one session, as `raised_errors` and `uncaught_failures` report them. The
    session has this object, which refers to it weakly."""

    def __init__(self, session: "Session") -> None:
        self._session: Session = weakref.proxy(session)
        self._guards = 0  # blocks that are running, at whose end `leave` is called
        self._guarded_thread = 0  # on which they run
        self._raised: RaisedError | None = None  # the last failed allocation in them

    def abandon(self) -> None:
        """Forget the running blocks in a forked child."""
        self._guards, self._raised = 0, None

    @property
    def closed(self) -> bool:
        return self._session.closed

    @property
    def active_since(self) -> tuple[bool, float]:
        """Whether a step is open, and when the last one began."""
        sender = self._session.sender
        if sender is None:
            return False, 0.0
        return sender.steps.open is not None, sender.steps.ordinary.began

    @property
    def guards_this_thread(self) -> bool:
        """Whether a block of a step runs on this thread."""
        return self._guards > 0 and self._guarded_thread == threading.get_ident()

    def enter(self) -> None:
        """Begin a block of the open step; pair it with `leave`."""
        self._guards += 1
        self._guarded_thread = threading.get_ident()

    def leave(self, error: BaseException | None = None) -> None:
        """End the block, which may have raised an error. An allocation that failed in it gets its
        post-mortem now: what the step was given is known."""
        self._guards -= 1
        raised, self._raised = self._raised, None
        if raised is not None:
            self._write(raised)

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        """Take a failure whose exception is being made on this thread."""
        session = self._session
        raised = raised_now(error, request, session.layers.calling_line)
        if self._guards:
            self._raised = raised
            return
        if session.sender is None:
            session.start()
            if session.sender is not None:
                session.sender.steps.oom.look_back(since)
        # hooks guard their own steps
        self._write(raised, in_step=not session.hooked)

    def _write(self, raised: RaisedError, in_step: bool = True) -> None:
        """Write the post-mortem of an allocation that failed, by default in the open step, which
        its error ends."""
        session, sender = self._session, self._session.sender
        if sender is None:
            return
        steps, opened = sender.steps, sender.steps.open
        failed = None
        if opened is None or not in_step:
            last = session.layers.last_step if opened is None else steps.ordinary.step
            during: FailedDuring = "building" if raised.builds else "between_steps"
            place = Place(None if last < 0 else last, None, during)
        else:
            failed = steps.interrupt(opened)
            place = Place(steps.ordinary.step, opened.phase, "step")

        replay = None
        if failed is not None and session.drain():  # the chunks of earlier steps
            replay = self._replay_of(failed, steps.windows.helper)
        session.faults.run(POST_MORTEMS, steps.oom.on_error, raised, place, replay)
        if failed is not None:
            submit(sender.analyze, failed)

    def _replay_of(self, failed: TracedStep, helper: Helper) -> Replay:
        faults = self._session.faults
        return lambda *about: faults.run(REPLAYS, helper.failed_step, failed, *about)

    def on_uncaught(self, error: BaseException) -> None:
        """Handle an exception that nobody caught and that ends the program, or a cell of
        IPython."""
        session, sender = self._session, self._session.sender
        call, log_dir = session.settings.at_failure, session.settings.log_dir
        if call is not None and sender is not None and sender.steps.oom.is_behind(error):
            session.drain()
            session.faults.run("the function for failures", call, error, log_dir)

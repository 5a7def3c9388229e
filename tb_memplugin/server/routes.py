"""The routes to all answers, and errors as HTTP.

Imported with the first request: TensorBoard starts faster."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from tensorboard import errors as tensorboard_errors
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.analysis import with_ranks
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.schema import clean
from tb_memplugin.server import answers, at_steps, predictions, series
from tb_memplugin.server.ahead import Ahead
from tb_memplugin.server.devices import devices
from tb_memplugin.server.lookup import Lookup
from tb_memplugin.server.messages import (
    ANY_BATCH_SIZE,
    ANY_DEVICE,
    ANY_STEP,
    BATCH_SIZE,
    BUDGET,
    CONDITIONS,
    DEVICE,
    LAYER,
    OOM,
    PHASE,
    PLACE,
    POINTS,
    RUN,
    SESSION,
    STEP,
    STEPS,
    STRETCH,
    Route,
    Sources,
    StaticFiles,
    data_body,
    error_response,
    parse,
    respond,
)
from tb_memplugin.server.run_list import RunList
from tb_memplugin.storage import Reader, given_back
from tb_memplugin.storage.files import FileSource, Source, SourceError
from tb_memplugin.version import __version__


def runs(lookup: Lookup) -> answers.RunsAnswer:
    facts = lookup.listed.facts(lookup, lookup.reader.catalog(lookup.source))
    ranked = with_ranks([vars(one) for one in facts], time.time())
    return answers.RunsAnswer(__version__, [answers.RunInfo(**one) for one in ranked])


MAX_EXPERIMENTS = 16  # most experiments with cached data; a local server has one
# that the list of runs waits for a run that takes longer to read than the others
PATIENCE_SECONDS = 1.0
_FILES = ("index.js", "static/*")
DATA_ROUTES: Mapping[str, Route] = {
    "runs": Route(answers.RunsAnswer, runs),
    "answers": Route(answers.AnswersAnswer, series.four_answers, RUN, ANY_DEVICE, PHASE),
    "overview": Route(answers.OverviewHead, series.composition, RUN, STRETCH),
    "pool": Route(answers.PoolHead, series.pool, RUN, STRETCH),
    "host_memory": Route(answers.HostMemoryHead, series.host_memory, RUN, STRETCH),
    "ledger_totals": Route(
        answers.LedgerTotalsHead, series.totals, RUN, DEVICE, PHASE, LAYER, SESSION
    ),
    "layers": Route(answers.LayersAnswer, series.layers, RUN, ANY_DEVICE, ANY_STEP),
    "activations": Route(answers.ActivationsHead, series.activations, RUN, STEPS, POINTS),
    "snapshots": Route(answers.SnapshotsAnswer, at_steps.snapshots, RUN, ANY_DEVICE),
    "snapshot": Route(answers.Snapshot, at_steps.snapshot, RUN, DEVICE, STEP, PHASE),
    "timelines": Route(answers.TimelinesAnswer, at_steps.timelines, RUN, ANY_DEVICE),
    "timeline": Route(answers.TimelineHead, at_steps.timeline, RUN, DEVICE, STEP, PHASE),
    "maps": Route(answers.MapsAnswer, at_steps.maps, RUN, ANY_DEVICE),
    "map": Route(answers.MapHead, at_steps.memory_map, RUN, PLACE),
    "oom": Route(answers.OomsAnswer, at_steps.oom, RUN),
    "device_memory": Route(answers.DeviceMemory, at_steps.division, RUN, DEVICE, ANY_STEP),
    "devices": Route(answers.DevicesAnswer, devices, RUN, PHASE),
    "fixes": Route(answers.Fixes, predictions.fixes, RUN, OOM),
    "demand": Route(answers.DemandAnswer, predictions.demand, RUN, ANY_DEVICE),
    "plan": Route(answers.Plan, predictions.plan, RUN, ANY_DEVICE, BUDGET, BATCH_SIZE),
    "what_if": Route(answers.WhatIf, predictions.what_if, RUN, ANY_DEVICE, CONDITIONS),
    "curve": Route(answers.Curve, predictions.curve, RUN, ANY_DEVICE, ANY_BATCH_SIZE),
    "batch_limit": Route(
        answers.BatchLimit, predictions.batch_limit, RUN, ANY_DEVICE, ANY_BATCH_SIZE
    ),
}


class Server:
    """Responds to all requests of the plugin, given TensorBoard's `TBContext`. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._sources = Sources(context)
        self._static = StaticFiles()
        self._experiments: dict[str, tuple[Reader, RunList]] = {}
        self._ahead = Ahead()
        self._lock = threading.Lock()

    def respond(self, route: str, request: Request) -> Response:
        """Respond to a request. User errors become HTTP errors; other exceptions are bugs and
        propagate."""
        if request.method not in ("GET", "HEAD"):
            return error_response(
                request, 405, f"method {request.method:.20} is not allowed; use GET"
            )
        try:
            return self._file(route, request) if route in _FILES else self._data(route, request)
        except RequestError as error:
            return error_response(request, 400, str(error), error.parameter)
        except NotFoundError as error:
            return error_response(request, 404, str(error))
        except (SourceError, FormatError) as error:
            logging.getLogger(__name__).warning("tb_memplugin: %s", clean(str(error)))
            return error_response(request, 503, str(error))
        except tensorboard_errors.PublicError as error:
            return error_response(request, error.http_code, str(error))
        except HTTPException as error:
            return error_response(request, error.code or 400, error.description or error.name)

    def _data(self, route: str, request: Request) -> Response:
        values = parse(request.args, DATA_ROUTES[route].accepted)
        lookup = self._lookup(*self._sources.of(request))
        with given_back(), self._ahead.request():
            found = DATA_ROUTES[route].answer(lookup, values)
            response = respond(request, *data_body(found))
        if isinstance(found, answers.RunsAnswer) and isinstance(lookup.source, FileSource):
            self._ahead.ask(predictions.slow_questions(lookup, found.runs))
        return response

    def _file(self, route: str, request: Request) -> Response:
        # There may be a path prefix: the name follows the last "/static/".
        name = route if route == "index.js" else request.path.rpartition("/static/")[2]
        return respond(request, *self._static.read(name))

    def _lookup(self, experiment: str, source: Source) -> Lookup:
        with self._lock:
            if experiment not in self._experiments:
                while len(self._experiments) >= MAX_EXPERIMENTS:
                    del self._experiments[next(iter(self._experiments))]
                self._experiments[experiment] = Reader(), RunList(PATIENCE_SECONDS)
            reader, listed = self._experiments[experiment]
        return Lookup(reader, source, listed)

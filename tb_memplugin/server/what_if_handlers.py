"""Handler of the what-if route."""

import threading
from collections.abc import Mapping
from typing import Any

from tb_memplugin.analysis.what_if import RunPredictor, describe_curve, describe_what_if
from tb_memplugin.analysis.what_if_measured import describe_measured, measured_snapshot
from tb_memplugin.analysis.what_if_questions import checked_conditions, device_of
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.sizes import requests_bytes
from tb_memplugin.reader.source import Source
from tb_memplugin.server import requests

CACHE_BYTES = 16 << 20
"""Limit of the cached answers."""
PREDICTOR_BYTES = 128 << 20
"""Limit of the cached predictors, which keep the requests of their runs."""
_ROW_BYTES = 500
"""Estimated bytes of a row of an answer in memory."""


class WhatIfHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`, and RequestError for malformed conditions.

    An answer takes up to some seconds of computing. One is computed at a time, so that they do not slow down the other
    routes more than one does, and each only once.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._computing = threading.Lock()
        self._answers: ByteCache[dict[str, Any]] = ByteCache(CACHE_BYTES)
        self._predictors: ByteCache[RunPredictor] = ByteCache(PREDICTOR_BYTES)

    def what_if(self, source: Source, run: str, device: str | None, values: Mapping[str, str]) -> dict[str, Any]:
        """``GET what_if``: what a run would need under other conditions; `values` are the request's parameters."""
        conditions = checked_conditions(
            requests.batch_size(values),
            values.get("capacity"),
            *(values.get(name) or None for name in ("freeze", "unfreeze", "optimizer", "precision")),
        )
        loaded = self._reader.run(source, run, requests=True)
        chosen = device_of(loaded.run, device)
        key = (run, chosen, conditions)
        with self._computing:
            described = self._answers.get(key, loaded.version)
            if described is None:
                described = self._described(loaded, chosen, conditions)
                rows = 20 + len(described["ledger"]) + len(described["curve"])
                rows += len(described["measured"]["ledger"]) if described["measured"] else 0
                self._answers.put(key, loaded.version, described, _ROW_BYTES * rows)
            return described

    def _described(self, loaded: LoadedRun, device: str, conditions: Conditions) -> dict[str, Any]:
        predictor = self._predictor(loaded, device)
        answer = predictor.what_if(conditions)
        return {
            "run": loaded.run.name,
            **describe_what_if(answer),
            "curve": describe_curve(predictor.curve(answer)),
            "measured": describe_measured(measured_snapshot(loaded.run, device, answer.recorded_steps)),
        }

    def _predictor(self, loaded: LoadedRun, device: str) -> RunPredictor:
        key = (loaded.run.name, device)
        predictor = self._predictors.get(key, loaded.version)
        if predictor is None:
            predictor = RunPredictor(loaded.run, device)
            self._predictors.put(key, loaded.version, predictor, sum(map(requests_bytes, loaded.run.requests)))
        return predictor

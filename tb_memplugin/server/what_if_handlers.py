"""Handler of the what-if route."""

from collections.abc import Mapping
from typing import Any

from tb_memplugin.analysis.what_if import RunPredictor, describe_curve
from tb_memplugin.analysis.what_if_answer import describe_measured, describe_what_if, measured_snapshot
from tb_memplugin.analysis.what_if_questions import checked_conditions, device_of
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.reader.streams import BASIC, REQUESTS
from tb_memplugin.server import requests
from tb_memplugin.server.computed import Computed

_ROW_BYTES = 500
"""Estimated bytes of a row of an answer in memory."""


class WhatIfHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`, and RequestError for malformed conditions.

    An answer takes up to some seconds to compute.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answers = Computed(reader.cache)

    def what_if(self, source: Source, run: str, device: str | None, values: Mapping[str, str]) -> dict[str, Any]:
        """``GET what_if``: what a run would need under other conditions; `values` are the request's parameters."""
        conditions = checked_conditions(
            requests.batch_size(values),
            values.get("capacity"),
            *(values.get(name) or None for name in ("freeze", "unfreeze", "optimizer", "precision")),
        )
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)
        answer: dict[str, Any] = self._answers.get(
            ("what_if", run, chosen, conditions), loaded.version, lambda: self._described(loaded, chosen, conditions)
        )
        return answer

    def _described(self, loaded: LoadedRun, device: str, conditions: Conditions) -> tuple[dict[str, Any], int]:
        """The answer, and its estimated bytes in memory."""
        predictor = self._predictor(loaded, device)
        answer = predictor.what_if(conditions)
        described = {
            "run": loaded.run.name,
            **describe_what_if(answer),
            "curve": describe_curve(predictor.curve(answer)),
            "measured": describe_measured(measured_snapshot(loaded.run, device, answer.recorded_steps)),
        }
        rows = 20 + len(described["ledger"]) + len(described["curve"])
        rows += len(described["measured"]["ledger"]) if described["measured"] else 0
        return described, _ROW_BYTES * rows

    def _predictor(self, loaded: LoadedRun, device: str) -> RunPredictor:
        key = ("predictor", loaded.run.name, device)
        predictor: RunPredictor | None = self._reader.cache.get(key, loaded.version)
        if predictor is None:
            predictor = RunPredictor(loaded.run, device)
            self._reader.cache.put(key, loaded.version, predictor, loaded.nbytes)
        return predictor

"""Other lifetimes of a recorded step's chunks: results that the backward pass no longer needs, or now needs. Pure.

Layers before the first trained one take no part in the backward pass: their results are freed in the forward pass. If
they are trained, their results are kept for it.
"""

import dataclasses
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.sized_steps import event_order

Reals: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.bool_]
LATER_RESULTS = 3
"""A result that is not saved is freed once this many later ones exist: its consumers have run by then. No quick test
depends on its value: they pass with 1 as well."""


def with_lifetimes(requests: StepRequests, unsaved: Rows, saved: Rows) -> StepRequests:
    """The step with some of its own chunks freed earlier or later.

    Args:
        requests: The recorded step.
        unsaved: Which chunks are freed in the forward pass, shape [chunks]. The last one keeps its lifetime: the first
            trained layer may save its input.
        saved: Which chunks are kept until the step ends, shape [chunks].
    """
    own = (requests.birth >= 0) & (requests.death < requests.events)
    freed = requests.death.astype(np.float64)
    early = np.flatnonzero(unsaved & own)
    early = early[np.argsort(requests.birth[early], kind="stable")]
    last = len(early) - 1
    consumed = requests.birth[early[np.minimum(np.arange(last) + LATER_RESULTS, last)]] + 0.5
    freed[early[:last]] = np.minimum(freed[early[:last]], consumed)
    late = saved & own
    freed[late] = 2.0 * requests.events - requests.birth[late]  # the last one first
    return _with_events(requests, requests.birth.astype(np.float64), freed)


def in_place(requests: StepRequests, rows: Rows) -> StepRequests:
    """The step with new contents of variables written into their chunks.

    Args:
        requests: The recorded step.
        rows: Which chunks have the new contents, shape [chunks]: they are requested once the old ones are freed.
    """
    born = requests.birth.astype(np.float64)
    old = (requests.birth < 0) & (requests.death < requests.events)
    for row in np.flatnonzero(rows & (requests.birth >= 0)).tolist():
        same = (requests.owner == requests.owner[row]) & (requests.requested == requests.requested[row])
        replaced = np.flatnonzero(old & same)
        if len(replaced):
            old[replaced[0]] = False
            born[row] = max(born[row], float(requests.death[replaced[0]]) + 0.5)
    return _with_events(requests, born, requests.death.astype(np.float64))


def _with_events(requests: StepRequests, born: Reals, freed: Reals) -> StepRequests:
    """The step with its events in the order of these places, shape [chunks]."""
    if (born == requests.birth).all() and (freed == requests.death).all():
        return requests
    order = np.asarray(event_order(requests), np.int64)
    place = np.where(order < 0, freed[-1 - order], born[order])
    order = order[np.argsort(place, kind="stable")]
    birth, death, numbers = requests.birth.copy(), requests.death.copy(), np.arange(len(order))
    birth[order[order >= 0]] = numbers[order >= 0]
    death[-1 - order[order < 0]] = numbers[order < 0]
    return dataclasses.replace(requests, birth=birth, death=death)

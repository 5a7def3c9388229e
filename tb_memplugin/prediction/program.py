"""The recorded steps of the program that a prediction is about. Pure."""

import collections
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.model import Phase, StepRequests
from tb_memplugin.model.former import former_name


def recorded_program(requests: Iterable[StepRequests], device: str, phase: Phase = "train") -> tuple[StepRequests, ...]:
    """The recorded steps of a device since the program last changed, without changes that no later step follows.

    The first one may be the step that made the long-lived chunks. Steps before it with other batch sizes count as well
    if they have the same weights and optimizer state, for example those of an earlier session.
    """
    groups: list[list[StepRequests]] = [[]]
    for one in requests:
        if one.device == device and one.phase == phase:
            if one.first:
                groups.append([])
            groups[-1].append(one)
    complete = [group for group in groups if any(not one.first for one in group)]
    if not complete:
        return ()
    latest = complete[-1]
    first, later = [one for one in latest if one.first], [one for one in latest if not one.first]
    earlier: list[StepRequests] = []
    for group in reversed(complete[:-1]):
        if _program(group[-1]) != _program(latest[-1]):
            break
        known = {one.batch_size for one in (*earlier, *later)}
        earlier = [one for one in group if not one.first and one.batch_size not in known] + earlier
    return (*first, *earlier, *later)


def _program(requests: StepRequests) -> tuple[str, collections.Counter[tuple[str | None, str, int]]]:
    """What distinguishes a step's program: its mode, and the weights and optimizer state that it starts with."""
    lasting: collections.Counter[tuple[str | None, str, int]] = collections.Counter()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        owner = requests.owners[int(requests.owner[row])]
        if owner.category in ("weights", "optimizer_state") and former_name(owner.layer) is None:
            lasting[owner.layer, owner.category, int(requests.requested[row])] += 1
    return requests.mode, lasting


def first_typical_step(steps: Sequence[StepRequests]) -> int | None:
    """Number of the first recorded step with the latest batch size; None without steps.

    The peaks of the run's steps from it on are what a simulation of these steps is checked against.
    """
    typical = [one for one in steps if not one.first]
    return next((one.step for one in typical if one.batch_size == typical[-1].batch_size), None)

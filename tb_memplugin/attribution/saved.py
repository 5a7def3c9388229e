"""The chunks that are saved for the backward pass, at the end of each forward pass."""

from collections import defaultdict

import numpy as np

from tb_memplugin.attribution.chunks import Booleans
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import Integers


class SavedChunks:
    """The chunks of activations in use at a forward pass's end, and all of them in a window with
    `read_late` ops; without those of compiled modules."""

    def __init__(self, classifier: Classifier) -> None:
        window, execution = classifier.window, classifier.execution
        self._chunks, self._time = window.chunks, window.trace.time_ps
        graphs = window.facts.graphs
        late = {fact.read_late for one in graphs for fact in one.ops.values()} - {None}
        near = np.full(len(self._chunks), bool(late))
        for end in execution.forward_ends:
            near |= self._in_use(self._chunks.birth, self._chunks.death, end)
        rows = [
            one
            for one in np.flatnonzero(near & (self._chunks.birth >= 0)).tolist()
            if one not in classifier.plans
            and classifier.spans(one)[0][2][0][0].category == "activations"
        ]
        self._rows: Integers = np.asarray(rows, np.int64)
        self._birth, self._death = self._chunks.birth[self._rows], self._chunks.death[self._rows]
        self._read_late: dict[int, list[int]] = defaultdict(list)
        for place, fact in enumerate(map(execution.maker, rows)):
            if fact.read_late is not None:
                self._read_late[fact.read_late].append(place)

    def bytes_at(self, time_ps: int) -> int:
        rows = self._rows[self._in_use(self._birth, self._death, time_ps)]
        return int(self._chunks.requested[rows].sum())

    def at(self, time_ps: int) -> Integers:
        """The chunks in use at a time, and all of a backward pass over another one: that need not
        be in use at once."""
        births, deaths = self._birth.copy(), self._death.copy()
        for places in self._read_late.values():
            # An execution ends where all that it saved is freed.
            ends = np.maximum.accumulate(deaths[places])
            for execution in np.split(places, np.flatnonzero(births[places][1:] > ends[:-1]) + 1):
                births[execution] = births[execution].min()
                deaths[execution] = deaths[execution].max()
        return self._rows[self._in_use(births, deaths, time_ps)]

    def _in_use(self, births: Integers, deaths: Integers, time_ps: int) -> Booleans:
        event = int(np.searchsorted(self._time, time_ps, side="right")) - 1
        return (births <= event) & (deaths > event)

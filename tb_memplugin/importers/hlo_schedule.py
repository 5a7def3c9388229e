"""What XLA plans for a module whose buffer assignment is unknown, from its schedule."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tb_memplugin.importers.hlo_instructions import CALLING, PASSED_ON, Instructions, Key, bytes_of

# Have the result of something else, or memory that is given
_NO_BUFFER = PASSED_ON | {b"parameter", b"constant", b"call"}
# Read elements at other places than they write
_MOVING = frozenset(
    b"concatenate convolution dot dynamic-slice dynamic-update-slice gather pad reduce "
    b"reduce-window reverse scatter select-and-scatter slice sort transpose tuple".split()
)
_ALIGNMENT = 128


class Totals(NamedTuple):
    """Bytes that XLA planned for the temporaries of a module, and most of them live at once."""

    temporary_bytes: int
    live_bytes: int


class Placed(NamedTuple):
    """A buffer's instruction, the place in its result, and the place in an allocation."""

    instruction: int
    part: tuple[int, ...]
    offset: int
    bytes: int


Kind = Literal["given", "constant", "own"]


class Allocation(NamedTuple):
    kind: Kind
    bytes: int
    returned: bool
    places: Sequence[Placed]


def _placed(key: Key, offset: int, size: int) -> Placed:
    return Placed(key[0], () if key[1] < 0 else (key[1],), offset, size)


class ScheduledInstructions(Instructions):
    """The instructions of a module, and what its schedule says of its memory."""

    def scheduled(self, module: Any, totals: Totals) -> Iterator[Allocation]:
        """Allocations of a module without XLA's assignment: arguments, results, and temporaries
        from their lifetimes in its schedule. Whether results of elementwise fusions take the place
        of operands is decided by XLA's own figure of what is live at the peak."""
        entry = self._computations[module.entry_computation_id]
        aliases = {tuple(one.output_shape_index) for one in module.input_output_alias.entries}
        donated = {one.parameter_number for one in module.input_output_alias.entries}
        root = self._instructions[entry.root_id]
        ends = enumerate(root.operand_ids) if root.opcode == b"tuple" else [(-1, root.id)]
        results = {
            key: (() if at < 0 else (at,)) in aliases
            for at, operand in ends
            for key in self._alias(operand)
        }
        for one in entry.instructions:
            size = bytes_of(one.shape)
            if one.opcode in (b"parameter", b"constant") and size:
                given = one.opcode == b"parameter"
                returned = given and one.parameter_number in donated
                place = Placed(one.id, (), 0, size)
                yield Allocation("given" if given else "constant", size, returned, [place])
        self._hand_over(self._overwritten)
        inside = self._results_of_branches()
        temporaries = []
        for key, size in self._results():
            if key in results and not results[key]:
                yield Allocation("own", size, True, [_placed(key, 0, size)])
            elif key not in results and key not in inside:
                temporaries.append((key, size))
        spans, separate = self._spans(temporaries), self._last.copy()
        self._hand_over(self._maybe_overwritten)
        in_place = self._spans(temporaries)
        peak = totals.live_bytes
        if abs(_most_live(in_place) - peak) < abs(_most_live(spans) - peak):
            spans = in_place
        else:
            self._last = separate
        places = [
            _placed(key, max(0, min(offset, totals.temporary_bytes - size)), size)
            for (key, size), offset in zip(temporaries, _packed(spans), strict=True)
        ]
        if totals.temporary_bytes:
            yield Allocation("own", totals.temporary_bytes, False, places)

    def _results(self) -> Iterator[tuple[Key, int]]:
        """What instructions make, with the bytes."""
        for number in self._order:
            one = self._instructions[number]
            if one.opcode in _NO_BUFFER or one.opcode.endswith(b"-done"):
                continue
            parts = list(enumerate(one.shape.tuple_shapes)) or [(-1, one.shape)]
            for part, shape in parts:
                if size := bytes_of(shape):
                    yield (number, part), size

    def _results_of_branches(self) -> set[Key]:
        """What the calling loop or condition has as its own result."""
        calling = (self._instructions[number] for number in self._order)
        called = (
            one for it in calling if it.opcode in CALLING for one in it.called_computation_ids
        )
        return {key for one in called for key in self._alias(self._computations[one].root_id)}

    def _spans(self, keys: Iterable[tuple[Key, int]]) -> list[tuple[int, int, int]]:
        return [(self._position[key[0]], self._end(key), size) for key, size in keys]

    def _hand_over(self, overwritten: Callable[[Any], Iterator[int]]) -> None:
        """End what an instruction overwrites before it."""
        for position, number in enumerate(self._order):
            for operand in overwritten(self._instructions[number]):
                for key in self._alias(operand):
                    if self._last.get(key) == position:
                        self._last[key] = position - 1

    def _maybe_overwritten(self, instruction: Any) -> Iterator[int]:
        """An operand as large as the result of a fusion that takes each element by itself."""
        fused = list(self._fused(instruction)) if instruction.opcode == b"fusion" else []
        if not fused or any(one.opcode in _MOVING for one in fused):
            return
        position, size = self._position[instruction.id], bytes_of(instruction.shape)
        for one in instruction.operand_ids:
            ends = all(self._last.get(key) == position for key in self._alias(one))
            if ends and bytes_of(self._instructions[one].shape) == size:
                yield one
                return

    def _overwritten(self, instruction: Any) -> Iterator[int]:
        operands = instruction.operand_ids
        yield from (
            operands[one.operand_index]
            for one in instruction.output_operand_aliasing
            if one.operand_index < len(operands)
        )
        if instruction.opcode in (b"while", b"dynamic-update-slice"):
            yield from operands[:1]
        update = self._instructions.get(self._fused_result(instruction.id, 0))
        if update is not instruction and update is not None:
            given = self._with_opcode((*update.operand_ids, 0)[0], b"parameter")
            is_update = update.opcode == b"dynamic-update-slice" and given is not None
            if is_update and given.parameter_number < len(operands):
                yield operands[given.parameter_number]

    def _end(self, key: Key) -> int:
        start = self._position[key[0]]
        return max(start, *(self._last.get(one, start) for one in (key, (key[0], -1))))


def _most_live(spans: Sequence[tuple[int, int, int]]) -> int:
    """Most bytes at one position of buffers, each (first position, last position, bytes)."""
    starts, ends, sizes = np.asarray(spans, np.int64).reshape(-1, 3).T
    changes = np.zeros(int(ends.max(initial=-1)) + 2, np.int64)
    np.add.at(changes, starts, sizes)
    np.subtract.at(changes, ends + 1, sizes)
    return int(np.cumsum(changes).max())


def _packed(spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """Offsets of such buffers at which those of one time do not overlap: the largest first, each
    into the smallest gap that holds it, as XLA does."""
    starts, ends, sizes = np.asarray(spans, np.int64).reshape(-1, 3).T
    sizes = -(-sizes // _ALIGNMENT) * _ALIGNMENT
    offsets = np.zeros(len(spans), np.int64)
    order = np.lexsort((starts, -sizes))
    for place, one in enumerate(order):
        others = order[:place]
        others = others[(starts[others] <= ends[one]) & (starts[one] <= ends[others])]
        others = others[np.argsort(offsets[others], kind="stable")]
        begins, stops = offsets[others], np.maximum.accumulate(offsets[others] + sizes[others])
        free = np.concatenate([[0], stops])
        gaps = np.append(begins, np.iinfo(np.int64).max) - free
        fitting = np.flatnonzero(gaps >= sizes[one])
        offsets[one] = free[fitting[np.argmin(gaps[fitting])]]
    return [int(offset) for offset in offsets]

"""How the sizes of a step's chunks follow from the batch size.

The traced function's shapes show this: Keras leaves the batch dimension open, so an output whose
open dimensions hold the batch grows with it, and an output without open dimensions does not. Where
the function was traced for one batch size only, the leading dimension must do, unless the size is
also that of a weight."""

import itertools
import math
import operator
import re

from tb_memplugin.attribution.module_sizes import (
    WITH_THE_BATCH,
    Powers,
    outputs,
    power_of_output,
    total_power,
)
from tb_memplugin.attribution.names import UNKNOWN_OP
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import (
    ANY_POWER,
    DTYPE_BYTES,
    PERSISTENT,
    SCRATCH_POWER,
    SQUARE_POWER,
    UNKNOWN_POWER,
    Category,
    OpFact,
    TraceFacts,
    is_gpu,
    matches,
)

SMALL_BYTES = 1024
"""Chunks up to this size count as independent of the batch if nothing says otherwise: most are
scalars. At 0, `test_a_request_without_a_shape_follows_the_output_of_exactly_its_bytes` fails."""
_RECURRENT = "CudnnRNN"
"""Part of the names of cuDNN's recurrent kernels. A part of their scratch space does not depend on
the batch; what they save for the backward pass, a vector of bytes, is in proportion to it but for
some hundred bytes."""
_COLUMNS = re.compile(r"(^|/)Conv[23]DBackprop(Filter|Input)\w*$")
"""Names of gradients of convolutions. On the CPU, where oneDNN does not compute them, they unfold
some images at a time into a matrix: as many as fit into the processor's cache, whatever the
batch."""
_UINT8 = 4
"""TensorFlow's number of the type in which oneDNN requests its scratch space: blocks for each
thread. In trainings of the Transformer and five drawn models (docs/accuracy.md), 99.7 % of its
bytes were the same at batch sizes 4 and 32."""


class BatchPowers:
    """Tells of each chunk of a trace how its size follows from the batch size, which is `batch`."""

    def __init__(self, classifier: Classifier, batch: int) -> None:
        self._window, self._classifier, self._batch = classifier.window, classifier, batch
        self._trace, facts = classifier.window.trace, classifier.window.facts
        weights = [variable for variable in facts.variables if variable.role == "weights"]
        self._weights = {variable.requested_bytes for variable in weights}
        self._weight_shapes = {variable.shape for variable in weights} - {()}
        self._held = {one.address: one.shape for one in facts.tensors if one.category == "inputs"}
        self._layer_sizes = {(one.layer, size) for one in facts.variables for size in one.shape}
        self._is_open = not any(graph.fixed_batch for graph in facts.graphs) and any(
            fact.pass_name == "forward"
            and any(shape is not None and -1 in shape for shape in fact.output_shapes)
            for graph in facts.graphs
            for fact in graph.ops.values()
        )
        self._of_batch = self._batch_bytes(facts)
        self._joined, self._fixed = self._dimensions(facts)
        self._of_variables = {one.start_address for one in facts.variables}
        self._constants = self._constant_powers(facts)

    def of(self, chunk: int, category: Category, layer: str | None = None) -> int:
        """The power of the batch size that the size of a chunk of this owner is proportional to, or
        another value of `batch_power`."""
        requested = self._window.requested[chunk]
        if category == "inputs":
            return self._of_input(chunk, requested)
        if category == "other_state" and self._window.address[chunk] not in self._of_variables:
            return self._constants.get(requested, 0)
        is_new = self._window.birth[chunk] >= 0 and category not in PERSISTENT
        if not is_new or (category == "weight_gradients" and requested in self._weights):
            return 0
        power = self._of_new(chunk, category, layer, requested)
        # An embedding's gradient has a row for each word of the batch; others are as large as their
        # weights.
        return max(power, 0) if category == "weight_gradients" else power

    def _constant_powers(self, facts: TraceFacts) -> dict[int, int]:
        """Bytes to powers of what TensorFlow may compute from constants once and keep, such as the
        identity matrix of a batch."""
        found: dict[int, int] = {}
        every = (fact for graph in facts.graphs for fact in graph.ops.values() if fact.is_constant)
        for fact in every:
            for (shape, powers), dtype in zip(outputs(fact), fact.output_dtypes, strict=False):
                if shape and min(shape) > 0:
                    size = math.prod(shape) * DTYPE_BYTES.get(dtype, 0)
                    power = self._of_dimensions(shape, shape, powers, size)
                    found[size] = power if found.get(size, power) == power else ANY_POWER
        return found

    def _sizes(self, chunk: int) -> tuple[int, ...]:
        """The dimensions in a new chunk's event; empty for an older one, a scalar, and without."""
        birth = self._window.birth[chunk]
        return () if birth < 0 else self._window.dimensions(birth) or ()

    def _unless_fixed(self, power: int, requested: int) -> int:
        """The power, but 0 for small requests and those of a weight's size."""
        return 0 if requested <= SMALL_BYTES or requested in self._weights else power

    def _of_new(self, chunk: int, category: Category, layer: str | None, requested: int) -> int:
        if chunk in self._classifier.plans:
            return UNKNOWN_POWER
        trace, birth, batch = self._trace, self._window.birth[chunk], self._batch
        fact, sizes = self._classifier.execution.maker(chunk), self._sizes(chunk)
        # an embedding's has a row for each word of the batch
        if fact.pass_name == "update":
            is_rows = len(sizes) > 1 and sizes not in self._weight_shapes
            return int(is_rows and self._holds_batch(sizes[:1]))
        # in the precision of the computation
        if category == "weight_gradients" and sizes in self._weight_shapes:
            return 0
        has_shape = bool(sizes) and min(sizes) >= 0
        is_output = trace.text(int(trace.region[birth])) == "output"
        power = None
        if has_shape and (fact.batch_powers or self._is_open):
            power = self._by_symbolic(fact, sizes, is_output, requested)
        if power is None:
            power = self._by_bytes(chunk, requested, is_output)
        if power is not None:
            return power
        # On a GPU, a vector that is no output is scratch space.
        name, on_gpu = self._window.op_name(chunk) or "", is_gpu(trace.device)
        is_recurrent = _RECURRENT in name
        is_vector = has_shape and len(sizes) == 1
        if not has_shape or (on_gpu and is_vector and (is_recurrent or not is_output)):
            is_scratch = on_gpu and is_vector and is_output == is_recurrent
            return self._unless_fixed(SCRATCH_POWER if is_scratch else UNKNOWN_POWER, requested)
        # A temporary of the CPU may be scratch space that follows the number of threads, not the
        # batch.
        of_threads = (is_vector and trace.dtype[birth] == _UINT8) or (
            len(sizes) == 3 and _COLUMNS.search(name)
        )
        if of_threads and not is_output and not on_gpu:
            return 0
        if self._holds_batch(sizes) and (len(sizes) > 1 or requested not in self._weights):
            return 1
        first = sizes[0]
        if fact is UNKNOWN_OP and sizes == (first, first) and first % batch == 0:
            # Each example by each example, or by as many features.
            of_features = first == batch and (layer, first) in self._layer_sizes
            power = 2 if first not in self._fixed else 1 if of_features else SQUARE_POWER
            return self._unless_fixed(power, requested)
        return self._by_leading(sizes, requested, category, is_output)

    def _of_input(self, chunk: int, requested: int) -> int:
        """A batch grows, the data set that it is taken from does not."""
        held = self._held.get(self._window.address[chunk])
        sizes = held if self._window.birth[chunk] < 0 else self._sizes(chunk)
        if sizes:
            return int(sizes[0] == self._batch)
        if requested in self._of_batch:
            return 1
        return 0 if self._of_batch or requested <= SMALL_BYTES else UNKNOWN_POWER

    def _batch_bytes(self, facts: TraceFacts) -> frozenset[int]:
        """Bytes of the tensors of a batch: of the recorded shapes, and of those that the input
        pipeline made."""
        made = {
            requested
            for chunk, requested in enumerate(self._window.requested)
            if requested in self._classifier.older.input_sizes
            if self._sizes(chunk)[:1] == (self._batch,)
        }
        return facts.batch.tensor_bytes(self._batch) | made

    def _dimensions(self, facts: TraceFacts) -> tuple[frozenset[int], frozenset[int]]:
        """Sizes of dimensions that hold the batch, alone or joined with those behind it, and of
        other dimensions: a kernel's copies of its operands, and operands that are reshaped for it,
        have such dimensions in other places."""
        joined: set[int] = set()
        fixed = {size for variable in facts.variables for size in variable.shape}
        for chunk in range(len(self._window.birth)):
            sizes = self._sizes(chunk)
            fact = self._window.requester(chunk) if sizes else UNKNOWN_OP
            for shape, powers in outputs(fact):
                if shape is None or not matches(shape, sizes):
                    continue
                holding = list(zip(sizes, powers, strict=True))
                if fact.batch_powers or self._is_open:
                    fixed.update(size for size, power in holding if power == 0)
                joined.update(size for size, power in holding if power)
                if sizes[0] == self._batch and (powers[0] or not self._is_open):
                    joined.update(itertools.accumulate(sizes, operator.mul))
        multiples = {size for size in joined if size > self._batch and size % self._batch == 0}
        return frozenset(multiples), frozenset(fixed)

    def _holds_batch(self, sizes: tuple[int, ...]) -> bool:
        return any(size in self._joined and size not in self._fixed for size in sizes)

    def _by_symbolic(
        self, fact: OpFact, sizes: tuple[int, ...], is_output: bool, requested: int
    ) -> int | None:
        """By the shapes of the op's outputs when it was traced; None if they do not tell."""
        matching = {
            self._of_dimensions(sizes, shape, powers, requested)
            for shape, powers in outputs(fact)
            if shape is not None and matches(shape, sizes)
        }
        if matching:
            return matching.pop() if len(matching) == 1 else UNKNOWN_POWER
        totals = {total_power(powers) for shape, powers in outputs(fact) if shape is None or shape}
        total = totals.pop() if len(totals) == 1 else None
        # An output that the graph does not know, such as a kernel's own one, or one in another
        # layout.
        return total if is_output and total and math.prod(sizes) % self._batch**total == 0 else None

    def _of_dimensions(
        self, sizes: tuple[int, ...], shape: tuple[int, ...], powers: Powers, requested: int
    ) -> int:
        """Of an output with these sizes, and with this shape and these powers in the traced
        function."""
        holding = [(size, power) for size, power in zip(sizes, powers, strict=True) if power]
        certain = sum(power for _, power in holding)
        # such as the examples that a mask leaves
        if any(size % self._batch**power for size, power in holding):
            return 0 if requested <= SMALL_BYTES else UNKNOWN_POWER
        pairs = zip(sizes, shape, powers, strict=True)
        unknown = [(size, known) for size, known, power in pairs if power is None]
        maybe = [known for size, known in unknown if not size % self._batch]
        if certain and maybe and requested > SMALL_BYTES:
            return SQUARE_POWER
        if certain or not unknown:
            return certain
        if maybe and set(maybe) == {-1}:
            return 1 if len(maybe) == 1 else SQUARE_POWER
        return self._unless_fixed(UNKNOWN_POWER if len(maybe) < 2 else ANY_POWER, requested)

    def _by_bytes(self, chunk: int, requested: int, is_output: bool) -> int | None:
        """By the output that takes exactly the requested bytes; None without one, or if several
        outputs disagree. Kernels that MLIR generated, which most elementwise ops on a GPU are,
        request bytes without a shape. Others join dimensions."""
        fact = self._window.requester(chunk)
        if not (fact.batch_powers or self._is_open):
            return None
        # Scratch space may be as large as several times the batch by chance.
        more = is_output and bool(fact.batch_powers)
        found = {
            power_of_output(shape, powers, DTYPE_BYTES.get(dtype, 0), requested, self._batch, more)
            for (shape, powers), dtype in zip(outputs(fact), fact.output_dtypes, strict=False)
            if shape is not None
        } - {None}
        return found.pop() if len(found) == 1 else None

    def _by_leading(
        self, sizes: tuple[int, ...], requested: int, category: Category, is_output: bool
    ) -> int:
        """By the leading dimension, behind those of size 1 that a product of matrices adds."""
        while len(sizes) > 2 and sizes[0] == 1:
            sizes = sizes[1:]
        if len(sizes) > 1 and sizes[0] == self._batch:
            return 1
        if sizes[0] % self._batch:
            return 0
        grows = (len(sizes) > 1 or is_output) and category in WITH_THE_BATCH and not self._is_open
        if grows and requested not in self._weights:
            return 1
        is_square = len(sizes) > 1 and sizes[0] == sizes[1]
        return self._unless_fixed(ANY_POWER if is_square else UNKNOWN_POWER, requested)

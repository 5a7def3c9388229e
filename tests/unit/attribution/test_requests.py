"""How sizes follow from the batch where the allocator's event has no shape, as on a GPU."""

import dataclasses
import math
from typing import Any

import pytest
from trace_cases import FACTS, FLOAT, Recorder, graph, with_shapes

from tb_memplugin.attribution.batch_powers import BatchPowers
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import (
    ANY_POWER,
    SCRATCH_POWER,
    SQUARE_POWER,
    UNKNOWN_POWER,
    BatchFacts,
    OpFact,
    TensorFact,
    VariableFact,
)

BATCH = 16
UINT8, HALF = 4, 19


def power_of(
    size,
    category="workspace",
    *,
    op="a",
    text=None,
    dtype=FLOAT,
    region="output",
    device="GPU:0",
    layer=None,
    **facts,
) -> int:
    """The power of the only request of a step, by an op with these facts, of `size` bytes with a
    shape or without."""
    step = Recorder()
    step.run(op, [(0x1000, size)], region=region)
    trace = step.trace() if text is None else with_shapes(step.trace(), {0: (text, dtype)})
    classifier = Classifier(
        dataclasses.replace(trace, device=device), dataclasses.replace(FACTS, **facts)
    )
    return BatchPowers(classifier, BATCH).of(0, category, layer)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "size", "power"),
    [
        (((-1, 64),), ("float32",), BATCH * 64 * 4, 1),
        # twice the output: scratch space
        (((-1, 64),), ("float16",), BATCH * 64 * 4, UNKNOWN_POWER),
        (((-1, 8, 8),), ("float32",), 3 * 64 * 4 * 16 + 4, UNKNOWN_POWER),
        (((1024,),), ("float32",), 4096, 0),
        # the batch and what else?
        (((-1, -1),), ("float32",), 4 * BATCH * BATCH * 4, UNKNOWN_POWER),
        (((-1, -1, 64),), ("float32",), BATCH * 64 * 4, UNKNOWN_POWER),  # the batch and what else?
        (((-1, 64), (1024,)), ("float32", "float32"), 4096, UNKNOWN_POWER),  # either of two outputs
        (((-1, 64), (-1, 64)), ("float32", "float32"), 4096, 1),
        ((None,), ("float32",), 4096, UNKNOWN_POWER),
        (((-1, 64),), ("string",), 4096, UNKNOWN_POWER),
        ((), (), 4096, UNKNOWN_POWER),
        ((), (), 512, 0),
    ],
)
def test_a_request_without_a_shape_follows_the_output_of_exactly_its_bytes(
    shapes, dtypes, size, power
) -> None:
    opened = OpFact("m/b", "forward", output_shapes=((-1, 3),), output_dtypes=("float32",))
    fact = OpFact("m/a", "forward", output_shapes=shapes, output_dtypes=dtypes)
    assert power_of(size, graphs=graph(a=fact, b=opened)) == power


def scratch_power(
    text: str, dtype: int, size: int, device: str, region: str = "temp", op: str = "a"
) -> int:
    """The power of a request with a shape, by an op with an output of 16 × 64 floats for each
    example."""
    fact = OpFact("m/a", "forward", output_shapes=((-1, 16, 64),), output_dtypes=("float32",))
    return power_of(
        size,
        op=op,
        text=text,
        dtype=dtype,
        region=region,
        device=device,
        graphs=graph(**{op: fact}),
    )


def test_scratch_space_of_a_gpus_kernels_is_known_as_such_whatever_divides_it() -> None:
    for size in (113_264_787, 4096 * 4096):  # both as cuDNN requested them
        assert scratch_power(f"[{size}]", UINT8, size, "GPU:0") == SCRATCH_POWER
        assert scratch_power(f"[{size}]", UINT8, size, "GPU:0", op="CudnnRNNV3") == UNKNOWN_POWER
    assert (
        scratch_power("[5242945]", FLOAT, 20_971_780, "GPU:0", region="output", op="CudnnRNNV3")
        == SCRATCH_POWER
    )
    assert scratch_power("[113264787]", UINT8, 113_264_787, "CPU:0") == 0
    assert scratch_power("[1000]", UINT8, 1000, "GPU:0") == 0


def test_a_kernel_that_joins_dimensions_requests_the_bytes_of_its_output() -> None:
    for device in ("CPU:0", "GPU:0"):
        assert scratch_power("[256,64]", FLOAT, BATCH * 16 * 64 * 4, device) == 1
        assert scratch_power("[256,128]", FLOAT, 2 * BATCH * 16 * 64 * 4, device) == UNKNOWN_POWER


@pytest.mark.parametrize(
    ("examples", "text", "power"),
    [
        (BATCH, f"[{BATCH},64]", 1),
        (4096, "[4096,64]", 0),  # the data set, which has a whole number of batches
        (1, "[64]", 0),
        (BATCH, None, 1),
        (4096, None, 0),
    ],
)
def test_a_batch_grows_and_its_data_set_does_not(
    examples: int, text: str | None, power: int
) -> None:
    given = BatchFacts(BATCH, (((-1, 64), "float32"), ((5, 3), "uint8"), ((-1, -1), "int32")))
    found = power_of(
        256 * examples, "inputs", op="IteratorGetNext", text=text, graphs=graph(), batch=given
    )
    assert found == power
    # AND is unknown if the shapes of the batch are
    if text is None:
        assert (
            power_of(256 * examples, "inputs", op="IteratorGetNext", graphs=graph())
            == UNKNOWN_POWER
        )


@pytest.mark.parametrize("known", [True, False])
def test_an_input_that_is_older_than_the_step(known: bool) -> None:
    places = ((0x1000, 4096), (0x200000, BATCH))
    held = tuple(
        TensorFact("inputs", 256 * size, at, (size, 64), "float32") for at, size in places if known
    )
    given = BatchFacts(BATCH, (((-1, 64), "float32"),))
    step = Recorder()
    step.run("a", [], [(at, 256 * size) for at, size in places])
    facts = dataclasses.replace(FACTS, graphs=graph(), batch=given, tensors=held)
    powers = BatchPowers(Classifier(step.trace(), facts), BATCH)
    assert [powers.of(chunk, "inputs") for chunk in (0, 1)] == [0, 1]


@pytest.mark.parametrize(
    ("shape", "size", "power"), [((-1, 16, 64), 16 * 64, 1), ((1000, 64), 16 * 64, 0)]
)
def test_an_embeddings_gradient_has_a_row_for_each_word_of_the_batch(shape, size, power) -> None:
    fact = OpFact(
        "m/embedding", "backward", output_shapes=((-1, 16, 64),), output_dtypes=("float32",)
    )
    forward = OpFact(
        "m/embedding", "forward", output_shapes=((-1, 16, 64),), output_dtypes=("float32",)
    )
    requested = 4 * (BATCH * size if power else 1000 * 64)
    table = VariableFact(
        "table", "weights", "m/embedding", True, 4 * 1000 * 64, "CPU:0", 0x9000000, 0x9000000
    )
    text = f"[{','.join(str(BATCH if one == -1 else one) for one in shape)}]"
    graphs = graph(a=fact, b=forward)
    assert (
        power_of(requested, "weight_gradients", text=text, graphs=graphs, variables=(table,))
        == power
    )


def test_an_output_of_open_dimensions_that_hold_no_whole_batch_is_unknown() -> None:
    # As cuDNN's recurrent kernels return: 256 bytes more than for the batch.
    fact = OpFact("m/a", "forward", output_shapes=((-1,),), output_dtypes=("float32",))
    for count, power in ((5_242_944 + 1, UNKNOWN_POWER), (BATCH * 1000, 1)):
        assert power_of(4 * count, "activations", text=f"[{count}]", graphs=graph(a=fact)) == power


WORDS = OpFact("m/words", "forward", output_shapes=((-1, 32, 64),), output_dtypes=("float16",))
KERNEL = VariableFact(
    "kernel",
    "weights",
    "m/a",
    True,
    4 * 64 * 48,
    "CPU:0",
    0x9000000,
    0x9000000,
    (64, 48),
    "float32",
)
TABLE = VariableFact(
    "table",
    "weights",
    "m/b",
    True,
    4 * 1000 * 64,
    "CPU:0",
    0xA000000,
    0xA000000,
    (1000, 64),
    "float32",
)


def power_beside_words(
    fact, text, dtype, size, category="workspace", region="temp", words=None
) -> int:
    """The power of a request beside a result of 16 × 32 words, by an op of a layer whose kernel is
    64 × 48."""
    facts = dataclasses.replace(
        FACTS, graphs=graph(words=words or WORDS, a=fact), variables=(KERNEL, TABLE)
    )
    step = Recorder()
    step.run("words", [(0x100000, 2 * BATCH * 32 * 64)])
    step.run("a", [(0x1000, size)], region=region)
    shapes = {0: (f"[{BATCH},32,64]", HALF), 1: (text, dtype)}
    trace = dataclasses.replace(with_shapes(step.trace(), shapes), device="CPU:0")
    return BatchPowers(Classifier(trace, facts), BATCH).of(1, category)


@pytest.mark.parametrize(
    ("text", "size", "power"),
    [
        ("[1,512,64]", 4 * 512 * 64, 1),  # the words in another precision
        ("[1,512,48]", 4 * 512 * 48, 1),
        ("[1,64,48]", 4 * 64 * 48, 0),  # the kernel
        ("[1,16,48]", 4 * 16 * 48, 1),
        ("[512]", 4 * 512, 1),  # one number for each word
        ("[3072]", 4 * 3072, 0),  # one for each of the kernel's numbers
        ("[32768]", 4 * 32768, 1),  # one for each number of the words
        ("[4096]", 4 * 4096, UNKNOWN_POWER),
    ],
)
def test_a_kernels_copies_of_its_operands_follow_their_dimensions(
    text: str, size: int, power: int
) -> None:
    product = OpFact("m/a", "forward", output_shapes=((-1, 7),), output_dtypes=("float16",))
    assert power_beside_words(product, text, FLOAT, size) == power
    # AND as well in a function that was traced for one batch size
    words = dataclasses.replace(WORDS, output_shapes=((BATCH, 32, 64),))
    product = dataclasses.replace(product, output_shapes=((512, 7),))
    assert power_beside_words(product, text, FLOAT, size, words=words) == power


def test_rows_that_are_words_grow_and_those_of_a_kernel_or_of_all_words_do_not() -> None:
    # GIVEN a result in a function for one batch size, updates of an embedding, and a gradient in a
    # kernel's shape
    words = dataclasses.replace(WORDS, output_shapes=((BATCH, 32, 64),))
    product = OpFact("m/a", "forward", output_shapes=((512, 48),), output_dtypes=("float32",))
    assert (
        power_beside_words(product, "[512,48]", FLOAT, 4 * 512 * 48, region="output", words=words)
        == 1
    )
    square = OpFact("m/b", "update", output_shapes=((-1, 64),), output_dtypes=("float32",))
    for rows, power in ((512, 1), (1000, 0), (64, 0)):
        assert (
            power_beside_words(square, f"[{rows},64]", FLOAT, 4 * rows * 64, region="output")
            == power
        )
    gradient = OpFact("m/a", "backward", output_shapes=((-1, 48),), output_dtypes=("float16",))
    assert (
        power_beside_words(gradient, "[64,48]", HALF, 2 * 64 * 48, "weight_gradients", "output")
        == 0
    )


def test_scratch_space_of_the_cpus_threads_does_not_grow() -> None:
    # As requested with batches of 4 to 32, whether or not these divide it.
    for op in ("einsum/Einsum", "conv/convolution"):
        assert scratch_power("[12336]", UINT8, 12_336, "CPU:0", op=op) == 0
    assert scratch_power("[12336]", UINT8, 12_336, "GPU:0") == SCRATCH_POWER
    for text, size in (("[32,1536,288]", 28_311_552), ("[112,1536,27]", 9_289_728)):
        for op in ("conv/Conv2DBackpropFilter", "conv/Conv2DBackpropInput_1"):
            assert scratch_power(text, HALF, size, "CPU:0", op=op) == 0
        assert scratch_power(text, HALF, size, "CPU:0", op="einsum/Einsum") == UNKNOWN_POWER


def power_as_traced(sizes, shape, powers, has_shape=True) -> int:
    """The power of an op's output of these sizes, with this shape and these powers in the traced
    function."""
    known = () if powers is None else (powers,)
    fact = OpFact(
        "m/a", "forward", output_shapes=(shape,), output_dtypes=("float32",), batch_powers=known
    )
    text = f"[{','.join(map(str, sizes))}]" if has_shape else None
    return power_of(
        4 * math.prod(sizes), "activations", text=text, graphs=graph(a=fact), variables=(KERNEL,)
    )


@pytest.mark.parametrize(
    ("sizes", "shape", "powers", "power"),
    [
        ((BATCH, 500), (BATCH, 500), (1, 0), 1),  # in a function for one batch size
        ((BATCH * 20, 32), (BATCH * 20, 32), (1, 0), 1),
        ((640, 32), (640, 32), (0, 0), 0),
        ((2 * BATCH, 2 * BATCH), (2 * BATCH, 2 * BATCH), (1, 1), 2),
        ((2 * BATCH, 2 * BATCH), (-1, -1), (1, 1), 2),
        ((BATCH, 2 * BATCH, 8), (-1, -1, 8), (1, 0, 0), 1),  # time steps
        ((BATCH, 2 * BATCH, 8), (-1, -1, 8), (1, None, 0), SQUARE_POWER),
        # a size that the program writes down
        ((BATCH, 100), (BATCH, 100), (None, 0), UNKNOWN_POWER),
        ((2 * BATCH, BATCH), (2 * BATCH, BATCH), (None, None), ANY_POWER),
        ((BATCH, 100), (-1, 100), (None, 0), 1),
        ((BATCH + 5, 100), (-1, 100), (1, 0), UNKNOWN_POWER),  # what a mask leaves
        ((BATCH + 5, 100), (-1, 100), (None, 0), UNKNOWN_POWER),
    ],
)
def test_an_output_grows_as_its_dimensions_in_the_traced_function(
    sizes, shape, powers, power
) -> None:
    assert power_as_traced(sizes, shape, powers) == power


def test_bytes_without_a_shape_follow_the_powers_as_well() -> None:
    for sizes, shape, powers, power in (
        ((2 * BATCH, 2 * BATCH), (-1, -1), (1, 1), 2),
        ((BATCH, 500), (BATCH, 500), (1, 0), 1),
        ((3 * BATCH, 500), (-1, 500), (1, 0), 1),  # rows of patches
        ((BATCH, 500), (BATCH, 500), (None, 0), UNKNOWN_POWER),
    ):
        assert power_as_traced(sizes, shape, powers, has_shape=False) == power


@pytest.mark.parametrize(
    ("powers", "is_constant", "power"),
    [((1, 1), True, 2), ((None, None), True, ANY_POWER), ((0, 0), True, 0), ((1, 1), False, 0)],
)
def test_what_tensorflow_keeps_of_a_batch_grows_with_it(powers, is_constant, power) -> None:
    # GIVEN a matrix from before the step
    size, step = 4 * BATCH * BATCH * 4, Recorder()
    step.run("a", [], [(0x1000, size)])
    fact = OpFact(
        None,
        "forward",
        is_constant=is_constant,
        output_shapes=((2 * BATCH, 2 * BATCH),),
        output_dtypes=("float32",),
        batch_powers=(powers,),
    )
    facts = dataclasses.replace(FACTS, graphs=graph(eye=fact), batch=BatchFacts(BATCH))
    assert BatchPowers(Classifier(step.trace(), facts), BATCH).of(0, "other_state") == power


def shown(*results: tuple[tuple[int, ...], OpFact], batch: BatchFacts = BatchFacts()) -> int | None:  # noqa: B008
    """The batch size of a step by results of ops with these facts."""
    step, texts, ops = Recorder(), {}, {}
    for number, (sizes, fact) in enumerate(results):
        step.run(f"op{number}", [(0x1000 * (number + 1), 4 * math.prod(sizes))])
        texts[number] = f"[{','.join(map(str, sizes))}]", FLOAT
        ops[f"op{number}"] = fact
    facts = dataclasses.replace(FACTS, graphs=graph(**ops), batch=batch)
    return Classifier(with_shapes(step.trace(), texts), facts).window.facts.batch.size


def of_layer(*shape: int, has_rows: bool = False) -> OpFact:
    return OpFact("m/a", "forward", has_rows=has_rows, output_shapes=(shape,))


def test_an_open_batch_is_as_long_as_the_results_of_its_rows() -> None:
    rows = of_layer(-1, 64, has_rows=True)
    assert shown(((24, 64), rows), ((24 * 7, 8), of_layer(-1, 8))) == 24
    assert shown(((24, 64), of_layer(-1, 64))) is None
    assert shown(((24, 64), of_layer(24, 64, has_rows=True))) is None  # traced for one size
    # What is noted of it may be a full batch's.
    assert shown(((24, 64), rows), batch=BatchFacts(32)) == 24
    # Nodes and graphs are no batch of one size, but for a program that says so.
    nodes = ((140, 64), rows), ((8, 64), of_layer(-1, 64))
    assert shown(*nodes) is shown(*nodes, batch=BatchFacts(140)) is None
    assert shown(((140, 64), rows), ((8, 1), of_layer(-1, 1, has_rows=True))) is None
    assert shown(*nodes, batch=BatchFacts(8, named=True)) == 8


def test_a_size_that_no_result_of_a_layer_holds_is_no_batch() -> None:
    state = ((1, 64), of_layer(1, 64))
    assert shown(state, batch=BatchFacts(16)) is None
    assert shown(((32, 64), of_layer(32, 64)), state, batch=BatchFacts(16)) == 16


def test_eagerly_a_square_is_each_example_by_each_example_or_by_as_many_features() -> None:
    wide = dataclasses.replace(KERNEL, shape=(BATCH, 48))
    for size, layer, variable, power in (
        (3 * BATCH, "m/a", KERNEL, SQUARE_POWER),  # 48 is a size of the kernel
        (2 * BATCH, None, wide, 2),
        (BATCH, "m/a", wide, 1),
        (BATCH, None, wide, SQUARE_POWER),
    ):
        eagerly: Any = {"mode": "eager", "graphs": (), "variables": (variable,), "layer": layer}
        found = power_of(
            4 * size * size, "activations", op="MatMul", text=f"[{size},{size}]", **eagerly
        )
        assert found == (0 if 4 * size * size <= 1024 else power)

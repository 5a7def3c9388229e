"""A step of three layers with two of them recomputed, worked out by hand."""

from typing import cast

import pytest
from requests_cases import THREE_LAYERS, HandMade, hand_made_requests

from tb_memplugin.fit import Conditions, SizedStep, peak_in_one_piece
from tb_memplugin.fit.cases import make_case
from tb_memplugin.fit.changes import FEWER_RESULTS, OVERLAPPING_RESULTS
from tb_memplugin.fit.recomputation import Parts, recomputed

AT_MOST = 1024 + 2048 + 8192 + 256  # in the backward pass of the head


def hand_made(chunks: HandMade = THREE_LAYERS) -> SizedStep:
    requests = hand_made_requests(chunks)
    return SizedStep(requests, requests.requested)


def test_a_part_knows_its_passes_and_its_output() -> None:
    part = Parts(hand_made().requests).of(["net/a", "net/b"], 2048)
    assert (part.forward.tolist(), part.begin, part.end, part.back) == ([0, 1], 0, 1, 5)
    assert (part.held.tolist(), part.output) == ([0, 1], 1)
    assert Parts(hand_made().requests).of(["net/other"], None) is None


def test_a_recomputed_segment_keeps_its_output_alone_until_its_backward_pass() -> None:
    step = hand_made()
    assert peak_in_one_piece(step) == AT_MOST
    again = recomputed(step, (("net/a", "net/b"),), {"net/b": 512})
    assert peak_in_one_piece(again) == AT_MOST - 1024
    # Both results are requested again, in their order, after the head's backward pass and before the segment's.
    birth, death = again.requests.birth, again.requests.death
    assert again.sizes.tolist() == [*step.sizes, 1024, 2048]
    assert birth[3] < birth[6] < birth[7] < birth[4]
    # The first result is freed before the head's is there; the output stays until its copy is there.
    assert death[0] < birth[2] and birth[7] < death[1] < birth[4]
    # The copies live as long as the recorded chunks did: the output less long than the first result.
    assert birth[4] < death[7] < death[6] < death[5]


def test_events_stay_numbered_one_by_one() -> None:
    requests = recomputed(hand_made(), (("net/a", "net/b"),), {}).requests
    assert sorted([*requests.birth.tolist(), *requests.death.tolist()]) == list(range(requests.events))
    assert requests.events == 16


def test_without_segments_that_save_something_the_step_is_as_recorded() -> None:
    step = hand_made()
    assert recomputed(step, (), {}) is step
    assert recomputed(step, (("net/other",),), {}) is step


def test_what_the_backward_pass_computes_ahead_is_not_there_before_the_recomputation() -> None:
    # GIVEN a part of GELU's derivative, which ran as soon as the layer's result was there
    chunks: HandMade = (
        ("net/a", "activations", "net/a/Conv2D", 1024, 0, 11),
        ("net/b", "activations", "net/b/Gelu/mul", 2048, 1, 9),
        ("net/b", "activations", "gradient_tape/net/b/Gelu/Square", 4096, 2, 8),
        ("net/head", "activations", "net/head/MatMul", 8192, 3, 5),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 4, 7),
        ("net/b", "activation_gradients", "gradient_tape/net/b/Mul", 2048, 6, 12),
        ("net/a", "activation_gradients", "gradient_tape/net/a/Conv2D", 1024, 10, 13),
    )
    step = hand_made(chunks)
    part = Parts(step.requests).of(["net/a", "net/b"], 2048)
    assert part is not None and part.ahead.tolist() == [2] and part.saved.tolist() == [0, 1, 2]
    assert peak_in_one_piece(step) == AT_MOST + 4096
    # WHEN both layers are recomputed THEN it waits for that, and nothing but the output is there at the head's gradient
    assert peak_in_one_piece(recomputed(step, (("net/a", "net/b"),), {"net/b": 512})) == AT_MOST - 1024


@pytest.mark.parametrize(("layers", "kept"), [(("net/a", "net/b"), True), (("net/b",), False)])
def test_the_batch_stays_until_the_first_layers_are_recomputed_from_it(layers: tuple[str, ...], kept: bool) -> None:
    # GIVEN a batch that is freed once a convolution has it in another layout, as on a GPU
    chunks: HandMade = (
        (None, "inputs", "SameWorkerRecvDone", 512, 0, 2),
        ("net/a", "activations", "gradient_tape/net/a/Conv2DBackpropFilter-0-T", 512, 1, 13),
        ("net/a", "activations", "net/a/Conv2D", 1024, 3, 12),
        ("net/b", "activations", "net/b/Relu", 2048, 4, 10),
        ("net/head", "activations", "net/head/MatMul", 8192, 5, 7),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 6, 9),
        ("net/b", "activation_gradients", "gradient_tape/net/b/Mul", 2048, 8, 14),
        ("net/a", "activation_gradients", "gradient_tape/net/a/Conv2D", 1024, 11, 15),
    )
    again = recomputed(hand_made(chunks), (layers,), {layers[-1]: 512}).requests
    back, batch = again.birth[6], again.death[0]
    # THEN it is freed before the backward pass of the segment that reads it, or as early as recorded
    assert again.birth[5] < batch < back if kept else batch == 2
    assert not kept or again.birth[8 + 2] < batch


def test_no_chunk_of_a_long_segment_is_freed_before_it_is_requested() -> None:
    # GIVEN a layer with many temporaries, each freed before the next one
    count = 40
    temporaries: HandMade = tuple(("net/a", "workspace", "net/a/Mul", 256, 2 * at, 2 * at + 1) for at in range(count))
    begin = 2 * count
    chunks: HandMade = (
        *temporaries,
        ("net/a", "activations", "net/a/Add", 1024, begin, begin + 4),
        ("net/head", "activations", "net/head/MatMul", 8192, begin + 1, begin + 3),
        ("net/a", "activation_gradients", "gradient_tape/net/a/Add", 1024, begin + 2, begin + 5),
    )
    # WHEN it is recomputed THEN every chunk lives from its request on
    again = recomputed(hand_made(chunks), (("net/a",),), {}).requests
    assert len(again) > len(chunks) and (again.death > again.birth).all()


def test_results_of_layers_inside_a_recomputed_one_are_repeated_too() -> None:
    chunks: HandMade = (
        ("net/block/dense", "activations", "net/block/dense/MatMul", 1024, 0, 5),
        ("net/blocks", "activations", "net/blocks/MatMul", 2048, 1, 4),
        ("net/block/dense", "activation_gradients", "gradient_tape/net/block/dense/MatMul", 1024, 2, 3),
    )
    case = make_case([], [hand_made_requests(chunks)], Conditions(recompute=(("net/block",),)), ())
    assert case.changed.transient == (-FEWER_RESULTS * 1024, 0, OVERLAPPING_RESULTS * 1024)


@pytest.mark.parametrize("freed", [4.5, 9])
def test_random_numbers_of_the_size_of_the_output_are_not_the_output(freed: float) -> None:
    # GIVEN a dropout that writes its result into the chunk of the layer before, which the head may keep
    places = (
        ("net/a", "activations", "net/a/MatMul", 1024, 0, freed),
        ("net/drop", "workspace", "net/drop/StatelessRandomUniformV2", 1024, 1, 3),
        ("net/drop", "activations", "net/drop/GreaterEqual", 256, 2, 10),
        ("net/head", "workspace", "net/head/Cast", 512, 4, 4.8),
        ("net/head", "activations", "net/head/MatMul", 8192, 5, 7),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 512, 6, 11),
        ("net/a", "activation_gradients", "gradient_tape/net/a/MatMul", 1024, 8, 12),
    )
    order = sorted(place for *_, birth, death in places for place in (birth, death))
    chunks = tuple((*named, order.index(birth), order.index(death)) for *named, birth, death in places)
    # THEN its output is what outlives the random numbers
    part = Parts(hand_made_requests(cast(HandMade, chunks))).of(["net/a", "net/drop"], 1024)
    assert part is not None and part.output == 0


def test_a_seed_that_was_there_early_does_not_bring_earlier_results_along() -> None:
    # GIVEN a model that adds the results of its layers, and a dropout whose seed has no inputs
    chunks: HandMade = (
        ("net/b", "workspace", "net/b/seed", 8, 0, 12),
        ("net/a", "activations", "net/a/MatMul", 1024, 1, 15),
        ("net", "activations", "net/Add", 1024, 2, 14),
        ("net/b", "activations", "net/b/MatMul", 2048, 3, 10),
        ("net", "activations", "net/Add_1", 1024, 4, 11),
        ("net/head", "activations", "net/head/MatMul", 8192, 5, 7),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 6, 9),
        ("net/b", "activation_gradients", "gradient_tape/net/b/MatMul", 1024, 8, 13),
    )
    # THEN the sum behind the dropout's layer is recomputed with it, the one before is not
    part = Parts(hand_made_requests(chunks)).of(["net/b"], 2048)
    assert part is not None and part.forward.tolist() == [0, 3, 4]

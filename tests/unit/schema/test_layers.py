"""What unfreezing a layer would train."""

import pytest

from tb_memplugin.schema import Layer, former_name, replaced_optimizer, unfreezing_bytes, unused


def normalization(channels: int, variables: int, trainable: int = 0) -> Layer:
    """A batch normalization with this many variables of four bytes a channel."""
    size = 4 * channels
    return Layer(
        path="net/bn",
        type="BatchNormalization",
        trainable=False,
        parameters=variables * channels,
        weight_bytes=variables * size,
        trainable_weight_bytes=trainable * size,
        optimizer_bytes=0,
        output_shape=(-1, 8, channels),
        output_dtype="float32",
        output_bytes=None,
    )


@pytest.mark.parametrize("channels", [1, 2, 64])
@pytest.mark.parametrize(("variables", "trainable"), [(2, 0), (3, 0), (4, 0), (4, 1)])
def test_neither_mean_and_variance_nor_what_is_trained_already_is_unfrozen(
    channels: int, variables: int, trainable: int
) -> None:
    made = normalization(channels, variables, trainable)
    assert unfreezing_bytes(made) == (variables - 2 - trainable) * 4 * channels


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"), [("Dense", (-1, 3), "float32"), ("BatchNormalization", None, None)]
)
def test_another_layer_has_no_statistics(kind: str, shape: tuple[int, ...] | None, dtype: str | None) -> None:
    assert unfreezing_bytes(Layer("net/d", kind, False, 12, 48, 0, 0, shape, dtype, None)) == 48


@pytest.mark.parametrize("name", [replaced_optimizer("Adam", 72), unused("resnet50")])
def test_a_path_that_begins_with_a_former_name_gives_that_name(name: str) -> None:
    assert former_name(name) == former_name(f"{name}/net/dense") == name


@pytest.mark.parametrize("path", [None, "", "net", "net/dense", "net/Adam replaced at step 72", "replaced at step x"])
def test_other_paths_give_none(path: str | None) -> None:
    assert former_name(path) is None

"""The data provider as a source: batches, failures, and missing fields."""

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tensorboard import errors
from tensorboard.data import provider as provider_lib

from tb_memplugin.storage.files import ProviderSource, SourceError, provider_source


class Provider:
    """Holds `data[run][tag]` as lists of frames; `fails` says for which (run, tag) pairs a read fails."""

    def __init__(self, data: Mapping[str, Mapping[str, list[bytes]]], fails: Any = lambda pairs: False) -> None:
        self.data, self.fails, self.batches = data, fails, []  # type: ignore[var-annotated]

    def list_tensors(self, context: Any, *, experiment_id: str, plugin_name: str) -> Any:
        assert (experiment_id, plugin_name) == ("", "tb_memplugin")
        return {
            run: {
                tag: provider_lib.TensorTimeSeries(
                    max_step=len(frames), max_wall_time=1.0, plugin_content=b"", description="", display_name=""
                )
                for tag, frames in tags.items()
            }
            for run, tags in self.data.items()
        }

    def read_tensors(
        self, context: Any, *, experiment_id: str, plugin_name: str, downsample: int, run_tag_filter: Any
    ) -> Any:
        assert downsample == provider_source.ALL
        pairs = [
            (run, tag) for run in run_tag_filter.runs for tag in run_tag_filter.tags if tag in self.data.get(run, {})
        ]
        self.batches.append(len(pairs))
        if self.fails(pairs):
            raise RuntimeError("RESOURCE_EXHAUSTED: message larger than max\nmore")
        found: dict[str, dict[str, list[provider_lib.TensorDatum]]] = {}
        for run, tag in pairs:
            found.setdefault(run, {})[tag] = [
                provider_lib.TensorDatum(step=at, wall_time=1.0, numpy=np.array(frame, dtype=object))
                for at, frame in enumerate(self.data[run][tag])
            ]
        return found


def source(provider: Any) -> ProviderSource:
    return ProviderSource(provider, None, "")


def read_all(reading: ProviderSource) -> dict[tuple[str, str], list[bytes]]:
    wanted = {run: list(tags) for run, tags in reading.listing().items()}
    return {
        (content.event_run, content.tag): [frame.data for frame in content.frames] for content in reading.read(wanted)
    }


def test_everything_is_read_once_in_growing_batches() -> None:
    data = {"r": {f"samples/s/{at}": [b"\x00" + bytes([at % 256]) * 10 + b"\x00\x00"] * 8 for at in range(1000)}}
    provider = Provider(data)
    assert read_all(source(provider)) == {("r", tag): frames for tag, frames in data["r"].items()}
    assert sum(provider.batches) == 1000 and len(provider.batches) < 8


def test_batches_stay_below_what_an_answer_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_source, "AIM_BATCH_BYTES", 4_000)
    provider = Provider({"r": {f"samples/s/{at}": [bytes(1_000)] for at in range(64)}})
    read_all(source(provider))
    assert provider.batches[0] == 16 and max(provider.batches[1:]) <= 4


def test_an_answer_over_the_limit_is_asked_for_in_smaller_parts() -> None:
    # GIVEN a data server that answers at most five tags at once
    data = {"r": {f"samples/s/{at}": [b"x"] for at in range(40)}}
    provider = Provider(data, fails=lambda pairs: len(pairs) > 5)
    # THEN all of them are read
    assert len(read_all(source(provider))) == 40


def test_one_tag_that_cannot_be_converted_costs_itself() -> None:
    data = {"r": {f"samples/s/{at}": [b"x"] for at in range(20)}}
    provider = Provider(data, fails=lambda pairs: ("r", "samples/s/7") in pairs)
    reading = source(provider)
    wanted = {run: list(tags) for run, tags in reading.listing().items()}
    contents = {content.tag: content for content in reading.read(wanted)}
    assert [tag for tag, content in contents.items() if not content.frames] == ["samples/s/7"]
    assert "RESOURCE_EXHAUSTED" in contents["samples/s/7"].damage[0] and "\n" not in contents["samples/s/7"].damage[0]


def test_a_provider_that_is_gone_is_a_source_error_after_few_tries() -> None:
    provider = Provider({"r": {f"samples/s/{at}": [b"x"] for at in range(1000)}}, fails=lambda pairs: True)
    with pytest.raises(SourceError, match="cannot be read now"):
        read_all(source(provider))
    assert len(provider.batches) <= 30


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ConnectionError("gone"), SourceError, "cannot be listed now"),
        (errors.PermissionDeniedError("not yours"), errors.PermissionDeniedError, "not yours"),  # TensorBoard's own
    ],
)
def test_a_listing_that_fails_is_a_source_error(error: Exception, raised: type[Exception], message: str) -> None:
    with pytest.raises(raised, match=message):
        source(mock.Mock(**{"list_tensors.side_effect": error})).listing()


def test_responses_and_fields_of_none_are_empty() -> None:
    empty = source(mock.Mock(**{"list_tensors.return_value": None, "read_tensors.return_value": None}))
    assert empty.listing() == {} and list(empty.read({"r": ["meta/s/0"]})) == []


@pytest.mark.parametrize("odd", [3.5, [b"x"] * 400_000], ids=["a number", "many strings"])
def test_values_other_than_one_string_are_reported_and_left_out(odd: Any) -> None:
    (content,) = source(Provider({"r": {"meta/s/0": [b"frame", odd]}})).read({"r": ["meta/s/0"]})
    assert [frame.data for frame in content.frames] == [b"frame"]
    assert content.damage == ("1 events of the tag do not hold one string",)


def test_tags_that_vanished_are_left_out() -> None:
    assert list(source(Provider({"r": {}})).read({"r": ["meta/s/0"], "gone": ["meta/s/1"]})) == []

"""The answer of `largest_batch_size`, as it is read."""

import dataclasses
import pathlib

import requests_cases

import tb_memplugin
from tb_memplugin import BatchSizeAnswer


def test_an_answer_is_read_as_text(tmp_path: pathlib.Path) -> None:
    requests_cases.write_run(tmp_path / "traced")
    predicted = tb_memplugin.what_if(tb_memplugin.load(tmp_path)["traced"])
    answer = BatchSizeAnswer(1024, predicted, True, 3 << 30, ("Batch size 1,024 is predicted.", "a <b> sentence"))
    assert str(answer) == "largest batch size: 1,024\n  Batch size 1,024 is predicted.\n  a <b> sentence"
    assert repr(answer) == "<BatchSizeAnswer batch_size=1024, verified=True, measured peak 3.0 GiB>"
    assert "a &lt;b&gt; sentence" in answer._repr_html_() and "<b>" not in answer._repr_html_()
    none = dataclasses.replace(answer, batch_size=None, verified=None, peak_bytes=None)
    assert str(none).startswith("largest batch size: unknown or none\n")
    assert repr(none) == "<BatchSizeAnswer batch_size=None, verified=None, measured peak –>"

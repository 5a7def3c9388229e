"""The tags of one session of a run, and the answer for a session that is not there."""

import pytest

from tb_memplugin.errors import NotFoundError
from tb_memplugin.storage import of_session
from tb_memplugin.storage.catalog import catalog_of

SESSIONS = ("0000000000001-aaaaaaaa", "0000000000002-bbbbbbbb")
LISTING = {"run/memory": {f"samples/{session}/0": mark for mark, session in enumerate(SESSIONS)}}


def test_a_session_has_its_tags_alone_and_an_unknown_one_lists_those_that_exist() -> None:
    tags = catalog_of(LISTING, {})["run"]
    assert [entry[3] for entry in of_session(tags, SESSIONS[1]).tags] == [1]
    with pytest.raises(NotFoundError, match=f"run run has no session 'c'; available: {', '.join(SESSIONS)}$"):
        of_session(tags, "c")
    with pytest.raises(NotFoundError, match=r"available: none$"):
        of_session(catalog_of({}, {"run/memory": ["not readable"]})["run"], "c")

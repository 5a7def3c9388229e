"""The cache: limited in bytes, least recently used values are dropped first, stale marks miss."""

from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.reader.cache import ByteCache


def test_a_value_is_found_only_under_its_mark() -> None:
    cache: ByteCache[str] = ByteCache(100)
    cache.put("tag", 1, "old", 10)
    assert cache.get("tag", 1) == "old"
    assert cache.get("tag", 2) is None
    cache.put("tag", 2, "new", 10)
    assert (cache.get("tag", 1), cache.get("tag", 2), cache.size) == (None, "new", 10)


def test_the_least_recently_used_goes_first() -> None:
    cache: ByteCache[str] = ByteCache(100)
    cache.put("a", 0, "a", 50)
    cache.put("b", 0, "b", 50)
    assert cache.get("a", 0) == "a"
    cache.put("c", 0, "c", 50)
    assert [cache.get(key, 0) for key in "abc"] == ["a", None, "c"]


def test_the_newest_is_kept_even_if_it_is_too_large() -> None:
    cache: ByteCache[str] = ByteCache(100)
    cache.put("a", 0, "a", 50)
    cache.put("huge", 0, "huge", 1000)
    assert (cache.get("huge", 0), cache.get("a", 0)) == ("huge", None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60))))
def test_the_size_is_the_sum_of_the_values_and_within_the_limit(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int] = ByteCache(100)
    for key, size in puts:
        cache.put(key, 0, size, size)
        held = [value for value in (cache.get(other, 0) for other in range(6)) if value is not None]
        assert cache.size == sum(held)
        assert cache.size <= 100 or len(held) == 1
        assert cache.get(key, 0) == size

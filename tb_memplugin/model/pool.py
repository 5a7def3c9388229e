"""The allocator's pool at one instant."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Pool:
    """The memory that the allocator has taken from the device.

    Attributes:
        pool_bytes: Bytes of the pool.
        in_use_bytes: Allocated bytes.
        largest_free_bytes: The largest free chunk, None if unknown.
    """

    pool_bytes: int
    in_use_bytes: int
    largest_free_bytes: int | None

    @property
    def free_bytes(self) -> int:
        """Bytes of the pool that are not allocated."""
        return self.pool_bytes - self.in_use_bytes

    @property
    def other_free_bytes(self) -> int | None:
        """Free bytes outside the largest free chunk; None if unknown."""
        return None if self.largest_free_bytes is None else self.free_bytes - self.largest_free_bytes

    @property
    def fragmentation(self) -> float | None:
        """Share of the free bytes outside the largest free chunk; None if that is unknown, or if nothing is free."""
        other = self.other_free_bytes
        return None if other is None or not self.free_bytes else other / self.free_bytes


def pool_of(pool_bytes: int | None, in_use_bytes: int | None, largest_free_bytes: int | None) -> Pool | None:
    """The pool with these figures, None if they are unknown or more is in use than there is.

    A largest free chunk of more than the free bytes counts as unknown.
    """
    if pool_bytes is None or in_use_bytes is None or pool_bytes < in_use_bytes:
        return None
    if largest_free_bytes is not None and largest_free_bytes > pool_bytes - in_use_bytes:
        largest_free_bytes = None
    return Pool(pool_bytes, in_use_bytes, largest_free_bytes)

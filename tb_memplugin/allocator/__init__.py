"""The rules of TensorFlow's BFC allocator: a simulator, the replay of traces, and whether and why a
request fits.

In come memory maps, traces and sizes; out come the maps and addresses that the allocator's rules
lead to, and verdicts with their sentences. Attribution checks traces with it, *What if* simulates
steps, and the server answers on maps."""

from tb_memplugin.allocator.fit import (
    free_sizes,
    map_summary,
    pool_at,
    unreserved_bytes,
    verdict,
    would_fit,
)
from tb_memplugin.allocator.replay import TraceReplay, added_regions, between_maps
from tb_memplugin.allocator.rules import (
    ROUNDING,
    SPLIT_AT_BYTES,
    PoolRules,
    next_region_bytes,
    rounded_bytes,
    rules_of,
)
from tb_memplugin.allocator.simulator import Simulator

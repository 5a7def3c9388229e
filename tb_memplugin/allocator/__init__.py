"""FACE."""

from tb_memplugin.allocator import fit
from tb_memplugin.allocator.fit import pool_at, verdict, would_fit
from tb_memplugin.allocator.replay import TraceReplay, added_regions, between_maps
from tb_memplugin.allocator.rules import ROUNDING, PoolRules, rounded_bytes, rules_of
from tb_memplugin.allocator.simulator import Simulator

"""FACE."""

from tb_memplugin.attribution.trace.lifetimes import INPUT_THREAD, chunks, input_events
from tb_memplugin.attribution.trace.op_names import facts_from_names, op_name
from tb_memplugin.attribution.trace.window import Owner, Window
from tb_memplugin.attribution.trace.xla import BufferAssignments, levels, peak_position, without_overlaps

"""Host memory as text for the terminal. Pure."""

import textwrap
from collections.abc import Mapping

from tb_memplugin.analysis.host_memory import HostSummary
from tb_memplugin.analysis.host_parts import PART_NAMES
from tb_memplugin.model.units import format_bytes


def host_lines(worker: str, summary: HostSummary) -> list[str]:
    """RSS of a worker, its parts, and its growth."""
    lines = [f"{worker}, host memory:" if worker else "host memory:"]
    resident, peak, state = summary.resident_bytes, summary.peak_bytes, summary.state
    if resident is None or peak is None:
        return []
    sentences = [
        f"RSS {format_bytes(resident)} at the last step, at most {format_bytes(peak)} at step {summary.peak_step}"
    ]
    if state is not None:
        sentences.append(f"step {state.step}: RSS {format_bytes(state.resident_bytes)} = {_sum(state.parts)}")
    if state is not None and state.allocated:
        sentences.append(f"allocated in it, resident or not: {_list(state.allocated)}")
    sentences.append(summary.sentence())
    for sentence in sentences:
        lines += textwrap.wrap(sentence, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return lines


def _named(sizes: Mapping[str, int]) -> list[str]:
    return [f"{PART_NAMES[name]} {format_bytes(size)}" for name, size in sizes.items()]


def _sum(parts: Mapping[str, int]) -> str:
    return " + ".join(_named({name: size for name, size in parts.items() if size or name == "other_bytes"}))


def _list(sizes: Mapping[str, int]) -> str:
    return ", ".join(_named(sizes))

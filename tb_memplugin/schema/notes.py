"""Beginnings of the notes that a run contains if steps or devices were not recorded. Other notes are about details."""

from collections.abc import Iterable

RECORDING = "memory recording"
SAMPLES = "memory samples"
WRONG_NUMBERS = "steps with a wrong number"
WRONG_PHASES = "steps with a wrong phase"
NOT_RECORDING = "Not recording"
"""Followed by the name of a device whose allocator keeps no statistics."""


def lost_step_notes(notes: Iterable[str]) -> list[str]:
    """The notes that say that steps were not recorded; a worker's name may precede a note."""
    parts = (RECORDING, SAMPLES, WRONG_NUMBERS, WRONG_PHASES)
    return [note for note in notes if any(f"{part} stopped" in note for part in parts)]


def unrecorded_devices(notes: Iterable[str]) -> list[str]:
    """The notes that name a device that was not recorded."""
    return [note for note in notes if f"{NOT_RECORDING} " in note]


def thinned_note(samples: int) -> str:
    """The note on a run with too many samples to show all of them; `samples` are as many as one is shown of."""
    return f"Too many samples to show all: of about {samples} in a row, the one with the highest peak is shown."

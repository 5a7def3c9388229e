"""A change over the steps of a run as sentences: what changed, why, and its effect on memory. Pure."""

import dataclasses

from tb_memplugin.analysis.growth.change_effects import Level
from tb_memplugin.model import Category
from tb_memplugin.model.units import format_bytes, format_figure, unit_for


@dataclasses.dataclass(frozen=True)
class StepChange:
    """A change at a step.

    Attributes:
        step: First step after it; the traced step after it if its own is unknown.
        after_step: If its own step is unknown, the traced step before it, else None.
        titles: What changed: "batch 4 → 96", "unfroze 8 layers"; empty if that is unknown.
        deliberate: Whether the batch size or the trained layers changed.
        before, after: The compared steps; None if no peak was measured.
        parts: Change of the categories between two traced steps that make up most of it, persistent ones first.
        slots_bytes, others_bytes: Growth of the memory of earlier optimizers and of earlier models; 0 if it is small.
        former_bytes: That memory after the change.
    """

    step: int
    after_step: int | None
    titles: tuple[str, ...]
    deliberate: bool
    before: Level | None
    after: Level | None
    parts: tuple[tuple[Category, int], ...] = ()
    slots_bytes: int = 0
    others_bytes: int = 0
    former_bytes: int = 0

    @property
    def delta_bytes(self) -> int | None:
        """Change of the peak; None if it was not measured on both sides."""
        if self.before is None or self.after is None:
            return None
        return self.after.peak_bytes - self.before.peak_bytes

    def sentence(self) -> str:
        """The change with its cause and its effect on the peak, in few words."""
        where = f"Step {self.step}" if self.after_step is None else f"Steps {self.after_step} to {self.step}"
        return f"{where}: {self._what()}"

    def _what(self) -> str:
        if self._is_former:
            kept = "earlier model" if self.others_bytes else "earlier optimizer"
            return f"{kept} stays, {signed_bytes(self.others_bytes + self.slots_bytes)}"
        title = ", ".join(self.titles)
        size = None if self.delta_bytes is None else signed_bytes(self.delta_bytes)
        if not title:
            return f"peak {size}"
        return title if size is None else f"{title}, {size}"

    def details(self) -> tuple[str, ...]:
        """What the sentence leaves out: the categories of the change, and what stays of earlier optimizers."""
        found = []
        if self.parts:
            found.append(f"Mainly {self._parts()}.")
        if self.slots_bytes or self.others_bytes:
            found.append(self._former())
            found.append(
                f"Earlier optimizers and models take {format_bytes(self.former_bytes)} in all. "
                "`tb_memplugin.release_unused()` between two trainings frees them."
            )
        return tuple(found)

    @property
    def _is_former(self) -> bool:
        """Whether all that is known to have changed is what stays of earlier optimizers and models."""
        return not self.deliberate and bool(self.slots_bytes or self.others_bytes)

    def _parts(self) -> str:
        """The categories with their changes in one unit: "optimizer state +113, activations +131 MiB"."""
        if not self.parts:
            return ""
        unit = unit_for(delta for _, delta in self.parts)
        named = (f"{category.replace('_', ' ')} {_signed(delta, unit)}" for category, delta in self.parts)
        return f"{', '.join(named)} {unit}"

    def _former(self) -> str:
        if self.others_bytes:
            return (
                f"New model: variables of the earlier one stay, {signed_bytes(self.others_bytes + self.slots_bytes)}."
            )
        return f"Compiled again: slots of the earlier optimizer stay, {signed_bytes(self.slots_bytes)}."


def _signed(delta: int, unit: str) -> str:
    return f"{'+' if delta >= 0 else '−'}{format_figure(abs(delta), unit)}"


def signed_bytes(delta: int) -> str:
    """A change of a size with its sign."""
    return f"{'+' if delta >= 0 else '−'}{format_bytes(abs(delta))}"

"""What the scenarios share: how one is declared, run, measured, judged and written down."""

from scenario.declare import (
    FALLS,
    HALVES,
    RISES,
    STAYS,
    Advice,
    Claim,
    Comparison,
    Expected,
    Scenario,
    Variant,
)
from scenario.measure import at_peak, of_step
from scenario.run import main

__all__ = [
    "FALLS",
    "HALVES",
    "RISES",
    "STAYS",
    "Advice",
    "Claim",
    "Comparison",
    "Expected",
    "Scenario",
    "Variant",
    "at_peak",
    "main",
    "of_step",
]

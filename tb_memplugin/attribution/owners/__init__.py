"""FACE."""

from tb_memplugin.attribution.owners.classifier import Classifier
from tb_memplugin.attribution.owners.execution import (
    BACKWARD,
    DIFFERENTIATED_BACKWARD,
    KEEPING_BACKWARD,
    UPDATE,
    LayerRun,
)
from tb_memplugin.attribution.owners.step_chunks import (
    UNATTRIBUTED,
    Ages,
    Point,
    StepChunks,
    ages_after,
    owned_at,
    owned_map,
    step_chunks,
    unmoved,
    without_gradients,
)

"""FACE."""

from tb_memplugin.recorder.program.layer_watch import OBSERVING, STEP_FUNCTIONS, TABLE, LayerWatch, unguarded
from tb_memplugin.recorder.program.observer import ObservedWindow

"""What of the program's models, calls and tensors explains its memory.

Comes in: a model with its optimizer, and what wrapped methods of Keras and TensorFlow see while a
recorder is open. Goes out: the layer table, and of a profiler window which layer made each op, owns
each variable and got which batch, as `TraceFacts`; beside it the program's counters. The recorder's
other packages call it from the training's thread; `training` uses the layer graph and its
segments."""

from tb_memplugin.recorder.watch.batches import batch_in, batch_notes, running_batch
from tb_memplugin.recorder.watch.counters import code_of, program_counters
from tb_memplugin.recorder.watch.datasets import data_pipelines
from tb_memplugin.recorder.watch.graph_ops import repeats
from tb_memplugin.recorder.watch.graphs import output_bytes
from tb_memplugin.recorder.watch.held_tensors import HeldTensors
from tb_memplugin.recorder.watch.layer_table import build_layer_table, signature
from tb_memplugin.recorder.watch.layers import own_variables, variables_of, walk
from tb_memplugin.recorder.watch.notes import call_notes, input_notes, note_running_fit
from tb_memplugin.recorder.watch.observer import (
    OBSERVING,
    STEP_FUNCTIONS,
    TABLE,
    LayerWatch,
    ObservedWindow,
)
from tb_memplugin.recorder.watch.segments import (
    LayerCall,
    Segments,
    calls,
    cut_points,
    functional,
    is_graph,
    layer_order,
    segments_of,
)
from tb_memplugin.recorder.watch.slots import slots
from tb_memplugin.recorder.watch.variable_values import variable_address, variable_bytes
from tb_memplugin.recorder.watch.variables import Variables
from tb_memplugin.recorder.watch.wrappers import hooks

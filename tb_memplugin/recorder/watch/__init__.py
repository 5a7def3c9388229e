"""FACE."""

from tb_memplugin.recorder.watch.batches import batch_notes, running_batch
from tb_memplugin.recorder.watch.call_notes import call_notes
from tb_memplugin.recorder.watch.datasets import data_pipelines
from tb_memplugin.recorder.watch.frames import PREFIXES, RunningCall, running_functions
from tb_memplugin.recorder.watch.graphs import PIPELINE_FUNCTION, graph_facts, output_bytes
from tb_memplugin.recorder.watch.hooks import hooks
from tb_memplugin.recorder.watch.inputs import input_notes, note_running_fit
from tb_memplugin.recorder.watch.layer_table import (
    Outputs,
    build_layer_table,
    outputs_by_layer,
    signature,
    with_output_bytes,
)
from tb_memplugin.recorder.watch.layers import (
    bytes_in_use,
    children,
    is_layer,
    is_module,
    model_classes,
    parts,
    replicas,
    short_device,
    tensor_address,
    tensor_size,
    tf_variable,
    variables_of,
)
from tb_memplugin.recorder.watch.program_counters import program_counters
from tb_memplugin.recorder.watch.repeatable import repeats
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
from tb_memplugin.recorder.watch.source_lines import SourceLines
from tb_memplugin.recorder.watch.variables import FormerOptimizer, Variables, former_variables

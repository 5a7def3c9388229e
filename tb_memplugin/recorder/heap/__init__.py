"""What only Python knows: its objects and frames.

Comes in: tensors and classes to look for. Goes out: the objects of these classes that the program
can reach, what holds them, what nobody can reach any more, the running functions with their
variables, and the user's lines. `watch` calls it to find tensors and their holders, the recorder's
loop for the arrays that the program keeps, and users call `release_unused`."""

from tb_memplugin.recorder.heap.frames import (
    DATASET_METHODS,
    TRAINER_METHODS,
    RunningCall,
    SourceLines,
    is_trainer,
    module_of,
    running_functions,
)
from tb_memplugin.recorder.heap.holders import Kept, find_holders, kept_objects, reachable
from tb_memplugin.recorder.heap.objects import registered_graphs, release_unused, unreachable

"""What only Python knows: its objects and frames.

Comes in: tensors and classes to look for. Goes out: the objects of these classes, what holds them, what nobody can
reach any more, the running functions with their variables, and the user's lines. `watch` calls it to find tensors and
their holders, the recorder's loop for the arrays that the program keeps, and users call `release_unused`."""

from tb_memplugin.recorder.heap.frames import (
    DATASET_METHODS,
    TRAINER_METHODS,
    RunningCall,
    SourceLines,
    is_trainer,
    module_of,
    running_functions,
)
from tb_memplugin.recorder.heap.holders import Kept, find_holders, kept_objects
from tb_memplugin.recorder.heap.objects import (
    YOUNG,
    Promotions,
    cycles_of,
    objects_of,
    release_unused,
    subclasses,
    unreachable,
)

"""One traced step: chunks → owners → ledger, timeline, map, requests; and the post-mortem of a
failed allocation.

In come the events of a step's profile (`AllocationTrace`), with the memory maps around it, and what
the recorder knows of the program (`TraceFacts`). `AttributedStep` gives each chunk a layer and a
category, and makes the records of the step from them. Owners of an untraced step are found by
comparison with the chunks of traced ones (`StepChunks`). The recorder calls it after each traced
step and failure, the command line for imported profiles and logs. Pure."""

from tb_memplugin.attribution.chunks import event_chunks, input_events, peak_event
from tb_memplugin.attribution.execution import BACKWARD, DIFFERENTIATED_BACKWARD, KEEPING_BACKWARD
from tb_memplugin.attribution.maps import Ages, StepChunks, ages_after, without_gradients
from tb_memplugin.attribution.module_sizes import ModuleChunk, ModuleContents
from tb_memplugin.attribution.planned import described_plan, owners_by_name, plan_of, planned_step
from tb_memplugin.attribution.post_mortems import (
    OomEvent,
    OwnerMatching,
    observed_batch,
    post_mortem,
    running_module,
    unmoved,
    with_module,
)
from tb_memplugin.attribution.scopes import facts_from_names, in_gradient_scope, named_by_scope
from tb_memplugin.attribution.step import AttributedStep
from tb_memplugin.attribution.tensors import largest_tensors, tensors_of_map

"""The analysis of traced steps, in a process of its own: profiles, memory maps and facts about the
program come in as plain data, the records of a step and the owners at a failure go out. `Helper` is
the training's side of it; `tracing` asks it for the records of traced steps, `failure` for
post-mortems. Nothing here imports TensorFlow."""

from tb_memplugin.recorder.helper.process import Helper, HelperError
from tb_memplugin.recorder.helper.recent_steps import NO_MODULE, OwnedMap, fact_of
from tb_memplugin.recorder.helper.step_analysis import TRACING, Dumps, StepAnalysis, TracedStep

"""When to trace a step, and the profiler's window around it: the step's number, phase and the
observed facts come in, a `TracedStep` with the path of its profile goes out. Also measures the pool
and host buffers at the end of some steps. All of it is for the training's thread. Called by the
recorder's loop alone."""

from tb_memplugin.recorder.tracing.measurements import Measurements
from tb_memplugin.recorder.tracing.windows import Windows

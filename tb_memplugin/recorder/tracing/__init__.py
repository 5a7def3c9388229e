"""When to trace a step, the profiler's window around it, and the work on what it recorded: the
step's number, phase and the observed facts come in; snapshots, memory maps, timelines and requests
go out. Also measures the pool and host buffers after some steps. Called by the recorder's loop
alone."""

from tb_memplugin.recorder.tracing.schedule import HostBuffers, StepEnds
from tb_memplugin.recorder.tracing.tracer import StepTracer

"""FACE."""

from tb_memplugin.recorder.tracing.step_analysis import TracedStep, TraceResult
from tb_memplugin.recorder.tracing.step_ends import HostBuffers, StepEnds
from tb_memplugin.recorder.tracing.step_tracer import StepTracer

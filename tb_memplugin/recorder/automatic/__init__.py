"""FACE."""

from tb_memplugin.recorder.automatic.recording import AutomaticRecording
from tb_memplugin.recorder.automatic.wrapping import Wrapping

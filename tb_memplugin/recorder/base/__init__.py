"""FACE."""

from tb_memplugin.recorder.base import background
from tb_memplugin.recorder.base.background import FOREIGN_SECONDS, Background, Job, end_foreign_calls, wait, weakly
from tb_memplugin.recorder.base.due import Due, changes
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.private_directory import PrivateDirectory, is_private, remove_abandoned
from tb_memplugin.recorder.base.process import abandon_in_child, uncounted
from tb_memplugin.recorder.base.settings import DEFAULT_LOG_DIR, Settings, checked_settings, is_batch_size, is_step

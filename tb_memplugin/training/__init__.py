"""FACE."""

from tb_memplugin.training.largest import BatchSizeAnswer, largest_batch_size
from tb_memplugin.training.planning import plan
from tb_memplugin.training.probing import probe
from tb_memplugin.training.remat_model import remat

"""FACE."""

from tb_memplugin.attribution.oom.owner_matching import OwnerMatching, observed_batch
from tb_memplugin.attribution.oom.post_mortem import OomEvent, post_mortem

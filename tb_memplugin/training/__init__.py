"""Trains a user's Keras model a few steps, and makes models that recompute layers in the backward
pass.

In come a compiled model and its data. `probe` records steps with small batches and returns the
recorded run, `largest_batch_size` verifies what is predicted from such a run, `MeasuredSteps`
trains with a plan's changes, and all restore the model bit for bit; `remat` returns a model with
the same weights that saves less; `print_what_fits` measures after a failure. Users call these names
as those of the package. Imports TensorFlow."""

from tb_memplugin.training.measuring import MeasuredSteps
from tb_memplugin.training.probing import BatchSizeAnswer, largest_batch_size, probe, recorded_steps
from tb_memplugin.training.remat_model import remat
from tb_memplugin.training.what_fits import print_what_fits

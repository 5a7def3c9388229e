"""Trains a user's Keras model a few steps, and makes models that recompute layers in the backward
pass.

In come a compiled model and its data. `probe` records steps with small batches and returns the
recorded run, `largest_batch_size` verifies what is predicted from such a run, `MeasuredSteps`
trains with a plan's changes, and all restore the model bit for bit; `remat` returns a model with
the same weights that saves less; `print_what_fits` measures after a failure. On JAX, XLA plans the
steps instead of `probe`, and nothing is trained. Users call these names as those of the package.
Imports the backend."""

from tb_memplugin.environment import keras_backend
from tb_memplugin.training.largest import BatchSizeAnswer

if keras_backend() != "jax":
    from tb_memplugin.training.measuring import MeasuredSteps
    from tb_memplugin.training.probing import largest_batch_size, probe, recorded_steps
    from tb_memplugin.training.remat_model import remat
    from tb_memplugin.training.what_fits import print_what_fits
else:
    from tb_memplugin.off import print_what_fits, remat
    from tb_memplugin.training.jax_steps import largest_batch_size, probe, recorded_steps

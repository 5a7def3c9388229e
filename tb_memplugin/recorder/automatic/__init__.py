"""Records programs that do not import this package: waits until they import TensorFlow or Keras,
then adds a recorder to what trains. A run's directory and name come in; recorded runs and notes on
what is missing go out. Called by ``tb-memplugin run`` and the notebook extension, before the
program imports TensorFlow: this package must not."""

from tb_memplugin.recorder.automatic.programs import AutomaticRecording, Wrapping

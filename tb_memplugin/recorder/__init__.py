"""Records a training: takes what Keras or a loop does, step by step, and hands frames to
`storage.write`.

Its doors are its inner rooms: `base`, `devices`, `heap`, `watch`, `failure`, `tracing`, `loop`
(callback, recorder, `memory_summary`) and `automatic` (programs that do not import this package).
The package's top, `training` and `cli` call them. Nothing of it raises into a training."""

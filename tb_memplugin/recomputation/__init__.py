"""Train a model with recomputed segments of layers: less memory for the same losses, gradients and weights.

Imports Keras and TensorFlow, so nothing here is imported unless it is used.
"""

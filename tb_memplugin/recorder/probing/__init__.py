"""A few training steps on a model that is restored afterwards: what it needs with other batch sizes."""

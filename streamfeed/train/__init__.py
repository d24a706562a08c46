"""The main job: a causal language model trained on a stream, checkpointed and resumed exactly."""

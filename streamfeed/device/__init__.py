"""Device: batches in the memory of an accelerator, copied there ahead of their use."""

"""Loader: worker processes, their messages, and the batches made of them."""

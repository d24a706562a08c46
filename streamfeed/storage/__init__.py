"""Storage: which files there are, and their bytes."""

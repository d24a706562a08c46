"""The Hugging Face Hub: which files a dataset means, pinned to a commit, and their bytes."""

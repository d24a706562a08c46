"""The console script ``streamfeed``."""

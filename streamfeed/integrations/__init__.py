"""The stream in other people's training loops, with exact resume."""

"""Formats: shards as records that any cursor finds again."""

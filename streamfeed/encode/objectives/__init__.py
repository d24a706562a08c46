"""Objectives: what records become. One module each, all with the protocol of :mod:`.protocol`."""

"""Plan: which lane reads which units, in what order, in every epoch."""

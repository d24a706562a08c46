"""Dataset: a rank's rows out of the lanes that it hosts, and the state of a run."""

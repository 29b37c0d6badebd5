"""From an experiment to a cluster ready to run: facts of the pools, and the objects built from the facts."""

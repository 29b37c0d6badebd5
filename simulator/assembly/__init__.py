"""From an experiment to a cluster that can run: the facts of pools, and the parts made of them."""

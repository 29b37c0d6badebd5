"""Questions asked of models rather than of one experiment: sweeps, searches, comparisons, whole training workloads."""

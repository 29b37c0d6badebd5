"""Studies over many runs: sweeps, searches, comparisons; and whole training workloads."""

"""Metrics, files and the summary table, made from the finished tables of a run."""
from simulator.results.report import summary_table

__all__ = ["summary_table"]

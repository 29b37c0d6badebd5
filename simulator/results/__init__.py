"""Metrics, files and the summary table, made from the finished tables of a run."""
from simulator.results.report import notes, summary_table

__all__ = ["notes", "summary_table"]

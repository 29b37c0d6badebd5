"""Metrics, files and the summary table, made from the finished tables of a run."""
from simulator.results.colours import coloured
from simulator.results.report import aged, notes, summary_table

__all__ = ["aged", "coloured", "notes", "summary_table"]

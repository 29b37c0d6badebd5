"""Helpers shared by the tests: scenarios, recordings and their comparison."""

"""Whole random experiments over all that the simulator knows, and what must hold of each of their runs."""

"""A readable twin of the vLLM scheduler in plain Python, and its comparison with the engine."""

"""Parts of a dataset.toml that tests of the score share; an iteration of any batch takes TEN_MS."""
PROVENANCE = """
measured = "nothing"
machine = "none"
engine = "none"
version = "0"
date = "2026-01-01"
source = "own"
licence = "Apache-2.0"
level = "request"
purpose = "held"
"""
TEN_MS = """
[backends.linear]
base_us = 10_000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_decode_token_us = 0.0
per_context_token_us = 0.0
"""

"""Whether the prompt of a request is computed apart from what follows it."""

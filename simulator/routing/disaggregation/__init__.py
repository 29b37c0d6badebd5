"""Deciders: whether the prompt of a request is computed on a prefill replica."""

"""Prefill and decode apart: requests handed over from one replica to another, with their KV."""

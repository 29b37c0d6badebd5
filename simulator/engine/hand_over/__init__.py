"""Disaggregated prefill and decode: requests move from one replica to another, with their KV."""

"""Encoders of images and other media on replicas of their own, ahead of the replicas that compute prompts."""

"""Encoders of images and the like on replicas of their own, ahead of those that compute prompts."""

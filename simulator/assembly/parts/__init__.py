"""Parts: one file of glue a feature."""

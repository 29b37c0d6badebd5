"""One page, or pictures, of what came out of a run."""

"""One page, or pictures, of the results of a run."""

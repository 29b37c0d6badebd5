"""Results in the files of other tools: Vidur's, SimAI's and BLIS's, and plain tables."""

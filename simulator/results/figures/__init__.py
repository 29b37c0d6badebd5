"""Charts as data, and their drawing; this package does not depend on requests or runs."""

"""Charts as data, and how they are drawn; nothing here knows what a request is."""

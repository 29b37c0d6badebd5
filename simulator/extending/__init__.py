"""Classes of users: their import, and checks that they override the required methods."""

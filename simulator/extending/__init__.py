"""Classes of users: where they are imported from, and whether they answer their base's questions."""

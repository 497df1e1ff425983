"""Memories: the feed-forward networks of a model as memories of keys and values (Geva et al. 2021)."""

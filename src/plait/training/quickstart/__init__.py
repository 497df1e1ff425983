"""Quickstart: a small encoder-decoder that learns to translate in a minute or two, from a grammar written for it."""

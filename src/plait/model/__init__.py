"""The figure of the 2017 paper, a file for each box."""

from plait.model.cache import Cache, CacheFull
from plait.model.head import pool
from plait.model.initialization import initialize
from plait.model.sites import Part, site_names, watching
from plait.model.transformer import Transformer

__all__ = ["Cache", "CacheFull", "Part", "Transformer", "initialize", "pool", "site_names", "watching"]

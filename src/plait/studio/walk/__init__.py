"""Walk: a forward pass told step by step, in a terminal and as a page."""

from plait.studio.walk.packed import LIMIT
from plait.studio.walk.page import walk_page
from plait.studio.walk.terminal import in_terminal

__all__ = ["LIMIT", "in_terminal", "walk_page"]

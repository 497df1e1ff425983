"""Lab: the page of experiments."""

from plait.studio.lab.page import lab_page

__all__ = ["lab_page"]

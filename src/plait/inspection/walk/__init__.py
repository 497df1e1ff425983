"""Walk: one forward pass told step by step, as data that a terminal and a page show."""

from plait.inspection.walk.choice import Choice
from plait.inspection.walk.step import Formula, Slot, Step, Sum, View
from plait.inspection.walk.telling import Told, Walk, walk

__all__ = ["Choice", "Formula", "Slot", "Step", "Sum", "Told", "View", "Walk", "walk"]

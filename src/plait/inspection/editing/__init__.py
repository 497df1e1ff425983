"""Editing: a fact, or a neuron, of a decoder changed in its weights; the result is an ordinary checkpoint."""

from plait.inspection.editing.edit import edit, promote
from plait.inspection.editing.facts import Fact, read_facts
from plait.inspection.editing.judging import Judgement, judge
from plait.inspection.editing.record import Edit, undo

__all__ = ["Edit", "Fact", "Judgement", "edit", "judge", "promote", "read_facts", "undo"]

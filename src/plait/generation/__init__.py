"""Generation: from a checkpoint and a prompt to text, one token at a time; from texts to vectors, and to what
a model thinks of them.

``generate`` and ``stream`` settle the rules, ``decode`` is the loop, a ``Runner`` is the model that it drives.
"""

from plait.generation.classify import classify
from plait.generation.constraint import Constraint, constrain
from plait.generation.embed import embed
from plait.generation.errors import GenerationError
from plait.generation.fill import Candidate, fill
from plait.generation.generate import generate, stream
from plait.generation.records import Finish, Generation, Piece
from plait.generation.row import Request
from plait.generation.runner import ModelRunner, Read, Runner
from plait.generation.schedule import Scheduler
from plait.generation.score import Scored, score
from plait.generation.search import Search
from plait.generation.settings import Settings
from plait.generation.speculate import drafter
from plait.generation.translate import translate, translate_lines
from plait.generation.translation import Translation

__all__ = [
    "Candidate",
    "Constraint",
    "Finish",
    "Generation",
    "GenerationError",
    "ModelRunner",
    "Piece",
    "Read",
    "Request",
    "Runner",
    "Scheduler",
    "Scored",
    "Search",
    "Settings",
    "Translation",
    "classify",
    "constrain",
    "drafter",
    "embed",
    "fill",
    "generate",
    "score",
    "stream",
    "translate",
    "translate_lines",
]

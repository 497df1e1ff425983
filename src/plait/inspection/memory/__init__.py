"""Memories: the feed-forward networks of a model as memories of keys and values (Geva et al. 2021)."""

from plait.inspection.memory.agreement import Agreement, Neurons, agreement, neurons
from plait.inspection.memory.composition import Composition, composition
from plait.inspection.memory.corpus import Corpus, Lane, pair_corpus, text_corpus
from plait.inspection.memory.networks import Memories, memories
from plait.inspection.memory.reading import Reader
from plait.inspection.memory.study import Layer, Study, study
from plait.inspection.memory.survey import Triggers, survey

__all__ = [
    "Agreement",
    "Composition",
    "Corpus",
    "Lane",
    "Layer",
    "Memories",
    "Neurons",
    "Reader",
    "Study",
    "Triggers",
    "agreement",
    "composition",
    "memories",
    "neurons",
    "pair_corpus",
    "study",
    "survey",
    "text_corpus",
]

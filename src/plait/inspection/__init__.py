"""Inspection: what happens inside a model, with the very weights that train and serve."""

from plait.inspection.attribution import Attribution, attribute
from plait.inspection.errors import InspectionError
from plait.inspection.heads import HeadLine, heads, induction
from plait.inspection.lens import lens, stream, unembed
from plait.inspection.memory.networks import Memories, memories
from plait.inspection.patching import Ablated, Patched, ablate, gradients, log_probability, logit_difference, patch
from plait.inspection.probes import Probe, probe
from plait.inspection.reading import Reading, read
from plait.inspection.trace import Trace, trace

__all__ = [
    "Ablated",
    "Attribution",
    "HeadLine",
    "InspectionError",
    "Memories",
    "Patched",
    "Probe",
    "Reading",
    "Trace",
    "ablate",
    "attribute",
    "gradients",
    "heads",
    "induction",
    "lens",
    "log_probability",
    "logit_difference",
    "memories",
    "patch",
    "probe",
    "read",
    "stream",
    "trace",
    "unembed",
]

"""Lab: small experiments, each a claim, what live models measure of it, and figures, as data."""

from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial

__all__ = ["Experiment", "Finding", "Result", "Trial"]

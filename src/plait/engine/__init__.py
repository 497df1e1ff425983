"""The engine: the model as a program of a dozen operations, run by kernels where there are some, otherwise by torch."""

from plait.engine.optimize import optimize
from plait.engine.runner import EngineRunner

__all__ = ["EngineRunner", "optimize"]

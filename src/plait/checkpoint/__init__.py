"""Checkpoints: sources of tensors, reading a model from them, writing it back."""

from plait.checkpoint.adapter import Adapter, AdapterError, Merged, merge
from plait.checkpoint.blocks import Blocks
from plait.checkpoint.calibration import calibrate
from plait.checkpoint.folder import open_folder
from plait.checkpoint.gguf import GGUFSource
from plait.checkpoint.loading import load
from plait.checkpoint.notice import CheckpointError, PlaitNotice
from plait.checkpoint.peft import read_adapter, save_adapter
from plait.checkpoint.pooling import SentencePooling
from plait.checkpoint.quantise import QUANTIZATIONS, Rounded, quantise
from plait.checkpoint.record import Checkpoint, Layout
from plait.checkpoint.resizing import resize
from plait.checkpoint.rules import DecodeRules
from plait.checkpoint.safetensors import SafetensorsSource
from plait.checkpoint.saving import save
from plait.checkpoint.source import TensorSource
from plait.checkpoint.weights import Weights

__all__ = [
    "Adapter",
    "AdapterError",
    "Blocks",
    "Checkpoint",
    "CheckpointError",
    "DecodeRules",
    "GGUFSource",
    "Layout",
    "Merged",
    "QUANTIZATIONS",
    "PlaitNotice",
    "Rounded",
    "SafetensorsSource",
    "SentencePooling",
    "TensorSource",
    "Weights",
    "calibrate",
    "load",
    "merge",
    "open_folder",
    "quantise",
    "read_adapter",
    "resize",
    "save",
    "save_adapter",
]

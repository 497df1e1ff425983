"""Seeds: which noise a step draws, whatever was drawn before it."""

from __future__ import annotations

import hashlib


def noise_seed(seed: int, step: int, rank: int = 0) -> int:
    """A seed for torch, from 0 to 2^63 - 1, that belongs to one step of one rank: a hash, so that no two are alike."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1

"""Held out: which samples are kept for evaluation, by what they say and nothing else.

Equal texts stay on one side, whatever order they come in and however often they stand, so that nothing that was learnt
is asked again.
"""

from __future__ import annotations

import hashlib


def held_out(text: str, share: float) -> bool:
    """Whether a sample with this text (a pair's source, say) is one of those kept; of many texts it is ``share``."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64

"""A checkpoint whose every answer is known: each token says which comes next, whatever stood before.

One layer that adds nothing, tokens that are one-hot, and a head that is the table of successors.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, DecodeRules, save
from plait.model import Transformer
from plait.text import load_tokenizer

END, USER, BOT, SYSTEM, SIZE = 256, 257, 258, 259, 260
SPECIALS = {"<end>": END, "<user>": USER, "<bot>": BOT, "<system>": SYSTEM}
SUCCESSORS = {  # any other byte is followed by the next
    ord("e"): END,
    ord("y"): 0xC3,  # é comes in two tokens
    0xC3: 0xA9,
    0xA9: END,
    BOT: ord("h"),
    ord("i"): ord("!"),
    ord("!"): END,
    END: ord("z"),  # visible text, where the end is not heeded
    USER: END,
    SYSTEM: END,
}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<bot>"


def byte_characters() -> list[str]:
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def write_tokenizer(folder: Path) -> None:
    """One token for a byte, its id the byte's value, and four special ones."""
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": id,
                "content": text,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for text, id in SPECIALS.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {character: byte for byte, character in enumerate(byte_characters())} | SPECIALS,
            "merges": [],
        },
    }
    config = {"eos_token": "<end>", "chat_template": TEMPLATE}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_checkpoint(folder: Path, *, broken: bool = False) -> Path:
    """The checkpoint in plait's own dialect; ``broken`` puts a NaN where it shows only in some tokens."""
    parts = folder / "tokenizer"
    parts.mkdir(parents=True)
    write_tokenizer(parts)
    architecture = Architecture(
        vocab_size=SIZE,
        d_model=SIZE,
        n_heads=2,
        d_head=4,
        d_ff=8,
        n_decoder_layers=1,
        max_length=64,
        norm="rmsnorm",
        position="rope",
        activation="silu",
        gated=True,
        qkv_bias=False,
        output_bias=False,
        ffn_bias=False,
    )
    model = Transformer(architecture)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()
        model.embedding.tokens.weight.copy_(torch.eye(SIZE))
        head = torch.zeros(SIZE, SIZE)
        for current in range(SIZE):
            head[SUCCESSORS.get(current, current + 1), current] = 1
        model.state_dict()["head.output.weight"].copy_(head)
        if broken:
            model.embedding.tokens.weight[0:256:3, 1] = torch.nan
    checkpoint = Checkpoint(
        architecture=architecture, model=model.eval(), tokenizer=load_tokenizer(parts), rules=DecodeRules(end=(END,))
    )
    return save(checkpoint, folder / "forced", dialect="plait")

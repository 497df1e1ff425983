"""What the recipes ask for, very small: files of the same names, and checkpoints of the kinds they go on from."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, DecodeRules, save
from plait.model import Transformer, initialize
from plait.text import load_tokenizer, train_tokenizer
from tests.cli.forced import END, SIZE, write_tokenizer

ENGLISH: list[str] = "a the man dog girl boy runs sees eats and with red small big house tree in on near".split()
GERMAN: list[str] = "ein der mann hund kind junge rennt sieht isst und mit rot klein gross haus baum in auf bei".split()


def sentences(words: list[str], count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=chance.randint(3, 9))) for _ in range(count)]


def write_data(folder: Path) -> Path:
    """Every file that a recipe names."""
    for name in ("tinyshakespeare", "lm", "trec", "cmn-eng", "multi30k/tok"):
        (folder / name).mkdir(parents=True)
    english, german = sentences(ENGLISH, 80), sentences(GERMAN, 80)
    (folder / "tinyshakespeare/input.txt").write_text("\n".join(sentences(ENGLISH, 400)))
    for name in ("valid", "test"):
        (folder / f"lm/wikitext2.{name}.txt").write_text("\n".join(english))
    kinds = ["DESC:manner", "HUM:ind", "LOC:city"]
    for name in ("train", "test"):
        lines = [f"{kinds[n % 3]} {text} ?" for n, text in enumerate(english)]
        (folder / f"trec/{name}.txt").write_text("\n".join(lines))
    rows = [f"{one}.\t{other}。\tCC-BY" for one, other in zip(english, german, strict=True)]
    (folder / "cmn-eng/cmn.txt").write_text("\ufeff" + "\n".join(rows))
    for split, count in (("train", 80), ("val", 6)):
        for side, lines in (("en", english[:count]), ("de", german[:count])):
            for path in (f"multi30k/{split}.{side}.gz", f"multi30k/tok/{split}.lc.norm.tok.{side}.gz"):
                with gzip.open(folder / path, "wt", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
    chats = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text.upper()}]}
        for text in english[:30]
    ]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    return folder


def write_decoder(folder: Path) -> Path:
    """A decoder with a chat template."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    write_tokenizer(parts)
    config = json.loads((parts / "tokenizer_config.json").read_text())
    turn = "{% for m in messages %}<{{ 'bot' if m['role'] == 'assistant' else m['role'] }}>{{ m['content'] }}<end>"
    config["chat_template"] = turn + "{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
    (parts / "tokenizer_config.json").write_text(json.dumps(config))
    shape = Architecture(
        vocab_size=SIZE, d_model=16, n_heads=2, d_ff=32, n_decoder_layers=1, position="rope", norm="rmsnorm",
        activation="silu", gated=True, qkv_bias=False, output_bias=False, ffn_bias=False, max_length=1024,
    )  # fmt: skip
    return write(folder / "model", shape, load_tokenizer(parts), DecodeRules(end=(END,), pad=END))


def write_encoder(folder: Path) -> Path:
    """An encoder without a head."""
    tokenizer = train_tokenizer(sentences(ENGLISH, 80), kind="wordpiece", vocab_size=100)
    shape = Architecture(
        vocab_size=len(tokenizer), d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, position="learned",
        max_length=64, norm_placement="post", embedding_norm=True, token_types=2, head=None,
    )  # fmt: skip
    return write(folder / "model", shape, tokenizer, DecodeRules(pad=tokenizer.pad))


def write(folder: Path, shape: Architecture, tokenizer, rules: DecodeRules) -> Path:
    model = Transformer(shape)
    initialize(model, "normal")
    return save(Checkpoint(architecture=shape, model=model.eval(), tokenizer=tokenizer, rules=rules), folder, "plait")

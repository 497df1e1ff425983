"""Tiny vocabularies, trained where they are needed: one of each kind that checkpoints come with."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """The quick brown fox jumps over the lazy dog. In 1969, humans first landed on the Moon as part of Apollo 11.
Once upon a time there was a small town in the heart of a valley, and the town's people did not know it.
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
What did she say? She said: "hello, world!" and then they didn't say a word;
we'll see what they've got, I'm sure you'd agree.
"""
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@cache
def byte_level(specials: tuple[str, ...] = tuple(CHATML_TOKENS)) -> str:
    """A byte-level BPE as tokenizer.json."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(specials), initial_alphabet=sorted(alphabet), show_progress=False
    )
    library.train_from_iterator([TEXT], trainer)
    return library.to_str()


@cache
def word_piece() -> str:
    """A lower-casing WordPiece with [CLS] and [SEP] as tokenizer.json, and clean-up on as it is saved."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    library.train_from_iterator(
        [TEXT], trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials, show_progress=False)
    )
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    library.enable_truncation(8)
    library.enable_padding(length=8)
    return library.to_str()


@cache
def metaspace() -> str:
    """A BPE over ▁ with byte fallback, as Llama's tokenizer.json: <s> is added at the start."""
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    library = Library(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    )
    state = json.loads(library.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    state["pre_tokenizer"]["split"] = False
    library = Library.from_str(json.dumps(state))
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library.to_str()


@cache
def unigram() -> str:
    """A unigram model over ▁ as T5's tokenizer.json: </s> is added at the end, and is a piece like any other."""
    library = Library(models.Unigram())
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    library.train_from_iterator(
        [TEXT],
        trainers.UnigramTrainer(
            vocab_size=200, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
        ),
    )
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return library.to_str()


@cache
def sentencepiece_model(kind: str = "bpe", **options: Any) -> bytes:
    """A sentencepiece model; ``bpe`` has byte fallback, as Llama's, ``unigram`` has T5's ids."""
    defaults: dict[str, dict[str, Any]] = {
        "bpe": {
            "vocab_size": 420,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
        },
        "unigram": {"vocab_size": 160, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    }
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=out,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        **(defaults[kind] | options),
    )
    return out.getvalue()


@cache
def scored_metaspace() -> str:
    """Llama's tokenizer.json as it is made of a sentencepiece model: its merges, the best score first."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model("bpe"))
    ids = list(range(processor.GetPieceSize()))
    vocab = dict(zip(processor.IdToPiece(ids), ids, strict=True))
    ranked = sorted(vocab, key=lambda piece: -processor.GetScore(vocab[piece]))
    splits = [(piece[:i], piece[i:]) for piece in ranked for i in range(1, len(piece)) if not piece.startswith("<")]
    merges = [(left, right) for left, right in splits if left in vocab and right in vocab]
    library = Library(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    state = json.loads(library.to_str())
    state["decoder"] = json.loads(metaspace())["decoder"]
    state["post_processor"] = json.loads(metaspace())["post_processor"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    state["added_tokens"] = [{"id": id, "content": name, **flags} for id, name in enumerate(("<unk>", "<s>", "</s>"))]
    return json.dumps(state)


def write_json(folder: Path, name: str, value: Any) -> Path:
    """A JSON file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return folder


def tokenizer_folder(folder: Path, state: str, **config: Any) -> Path:
    """A folder with a tokenizer.json and a tokenizer_config.json."""
    write_json(folder, "tokenizer.json", state)
    return write_json(folder, "tokenizer_config.json", config)


def gguf_byte_level(state: str, **more: Any) -> dict[str, Any]:
    """The metadata of a GGUF file for a byte-level tokenizer.json."""
    model, added = json.loads(state)["model"], json.loads(state)["added_tokens"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    types = [3 if any(token["id"] == id for token in added) else 1 for id in range(len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.{key}": value for key, value in more.items()},
    }


def gguf_sentencepiece(model: bytes, **more: Any) -> dict[str, Any]:
    """The metadata of a GGUF file for a sentencepiece BPE."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = list(range(processor.GetPieceSize()))
    flags = zip(processor.IsUnknown(ids), processor.IsControl(ids), processor.IsByte(ids), strict=True)
    types = [2 if unknown else 3 if control else 6 if byte else 1 for unknown, control, byte in flags]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": processor.IdToPiece(ids),
        "tokenizer.ggml.scores": processor.GetScore(ids),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.{key}": value for key, value in more.items()},
    }

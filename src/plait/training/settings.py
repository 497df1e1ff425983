"""Settings: what a recipe says, one frozen record for each of its sections; every field with its meaning and default.

A field's ``metadata`` holds ``help``, its meaning and unit, and where a number has bounds ``above``, ``below`` (neither
included), ``least`` and ``most`` (included). ``key`` is the field's name in the file, where Python has no such name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plait.model.initialization import Scheme

Precision = Literal["float32", "bfloat16", "pure_bfloat16", "float16", "auto"]


def _setting(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True, kw_only=True)
class Model:
    """[model]: which Transformer, freshly drawn or read; a key that is none of these is a field of its Architecture."""

    preset: str | None = _setting(None, "a published architecture's name; what differs follows as further keys")
    checkpoint: str | None = _setting(None, "a folder or a hub name to go on from, instead of a preset", key="from")
    initialization: Scheme = _setting("gpt2", "the scheme that fresh weights are drawn by")
    lora_rank: int = _setting(
        0, "columns of the low-rank matrices trained beside the frozen ones; 0: all is trained", least=0
    )
    lora_alpha: float = _setting(16.0, "their product is scaled by this / lora_rank", above=0)
    lora_dropout: float = _setting(0.0, "share of their input that is dropped", least=0, below=1)
    lora_targets: tuple[str, ...] = _setting(
        (),
        "matrices that get one, by the ends of their names, * is any part: attention.query; none: all of attention and "
        "feed-forward layers",
    )
    overrides: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "Architecture fields, instead of the preset's; written beside the rest"}
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """[data]: what is read, cut into which rows, and how many of them make a step."""

    train: tuple[str, ...] = _setting((), "files or folders; two files, or one .tsv or .jsonl, are sentence pairs")
    valid: tuple[str, ...] = _setting((), "the same, for evaluation")
    valid_fraction: float = _setting(
        0.0,
        "share of train kept for evaluation instead of valid: a text's end; of samples some, equal ones together",
        least=0,
        below=1,
    )
    format: Literal["auto", "text", "pairs", "chat", "labelled"] = _setting(
        "auto", "what the files hold; auto: by their names and keys"
    )
    tokenizer: str | None = _setting(
        None,
        "a folder, an installed package, 'characters' (others by their bytes), 'alphabet' (others are one unknown), "
        "'bytes' or 'train'; none: the checkpoint's, or 'train'",
    )
    tokenizer_kind: str = _setting("byte-bpe", "the kind of tokenizer that is trained")
    vocab_size: int = _setting(8000, "tokens of the tokenizer that is trained", above=0)
    joint: bool = _setting(
        True, "paired: the tokenizer that is trained is one for both sides; else each has one of vocab_size tokens"
    )
    length: int = _setting(256, "tokens in a row, at most", above=0)
    batch_rows: int | None = _setting(None, "rows in a step, all micro-batches and processes together", above=0)
    batch_tokens: int | None = _setting(None, "target tokens in a step, at most, instead of batch_rows", above=0)
    micro_batches: int = _setting(
        1,
        "parts in which a step is computed, to save memory; the same result, but contrastive has fewer rows beside",
        above=0,
    )
    packing: Literal["documents", "stream", "windows"] = _setting(
        "documents", "rows hold whole documents kept apart, one endless text, or windows at random places of it"
    )
    lowercase: bool = _setting(False, "text is lower-cased before it is tokenised")
    label_until: str | None = _setting(None, "labelled: a label ends before this; ':' makes DESC of DESC:manner")
    longest: Literal["drop", "cut", "split"] | None = _setting(
        None, "what becomes of text longer than a row; none: split for text, drop for the rest"
    )
    cache: str | None = _setting(None, "the folder of tokenised shards; none: the user's cache")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """[objective]: what the model is asked."""

    kind: Literal["causal", "masked", "spans", "denoising", "paired", "chat", "classes", "values", "contrastive"] = (
        _setting(
            "causal",
            "next token, hidden tokens, T5's spans, BART's text, a translation, answers, labels, numbers, or likeness",
        )
    )
    label_smoothing: float = _setting(0.0, "share of each target's probability that all tokens share", least=0, below=1)
    subword_dropout: float = _setting(
        0.0, "paired, BPE: the chance that a token is taken apart into the two it was merged from", least=0, below=1
    )
    softmax: Literal["vocabulary", "targets"] = _setting(
        "vocabulary",
        "paired: over all tokens, or those alone that occur in the data's targets, which is less work; the finished "
        "model then never writes another",
    )
    mask_rate: float | None = _setting(
        None,
        "masked, spans, denoising: share of tokens, or words, that are hidden; none: .15 (BERT, T5), of denoising .3 "
        "(BART)",
        above=0,
        below=1,
    )
    mean_span: float = _setting(3.0, "spans, denoising: tokens, or words, in a hidden span, on average", least=1)
    permute: bool = _setting(False, "denoising: sentences change places too")
    whole_words: bool = _setting(False, "masked: the pieces of a word are hidden together")
    temperature: float = _setting(0.05, "contrastive: similarities are divided by this", above=0)
    z_loss: float = _setting(0.0, "weight of log(Z)**2 of each target's logits in the loss", least=0)

    @property
    def hidden(self) -> float:
        """``mask_rate``, or what it is where that is not said."""
        return self.mask_rate if self.mask_rate is not None else 0.3 if self.kind == "denoising" else 0.15


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """[optimizer]: how weights move."""

    kind: Literal["adamw", "muon"] = _setting(
        "adamw", "AdamW for all, or Muon for hidden matrices and AdamW for the rest"
    )
    lr: float = _setting(1e-3, "AdamW's largest learning rate", least=0)
    matrix_lr: float = _setting(1e-2, "Muon's largest learning rate", least=0)
    beta1: float = _setting(0.9, "AdamW: memory of the gradient's mean", least=0, below=1)
    beta2: float = _setting(0.95, "AdamW: memory of its square's mean", least=0, below=1)
    eps: float = _setting(1e-8, "AdamW: added to the root of that", above=0)
    momentum: float = _setting(0.95, "Muon: memory of the gradient", least=0, below=1)
    weight_decay: float = _setting(
        0.01, "AdamW: a matrix shrinks by lr times this each step; norms and biases never", least=0
    )
    matrix_weight_decay: float = _setting(0.1, "Muon: a matrix shrinks by matrix_lr times this each step", least=0)
    clip: float = _setting(1.0, "the largest norm of all gradients together; 0: any", least=0)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """[schedule]: the share of the learning rate at each optimizer step."""

    kind: Literal["constant", "linear", "cosine", "inverse_sqrt", "wsd"] = _setting(
        "linear", "after the warm-up: constant, down a line, a cosine, 1/sqrt(step), or constant and a line at the end"
    )
    warmup: int = _setting(100, "steps from 0 to the whole learning rate", least=0)
    decay: int | None = _setting(None, "wsd: steps of the line at the end; none: a fifth of all", least=0)
    final: float = _setting(0.0, "linear, cosine, wsd: the share of the learning rate at the end", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class Run:
    """[run]: how long, with what noise and precision, and what is kept."""

    steps: int | None = _setting(None, "optimizer steps", above=0)
    epochs: float | None = _setting(None, "times that the training set is read, instead of steps", above=0)
    minutes: float | None = _setting(
        None, "stop after this time, interruptions not counted, whatever else is said", above=0
    )
    seed: int = _setting(0, "of weights, order, dropout and noise", least=0, most=2**63 - 1)
    dropout: float = _setting(0.0, "share dropped from embeddings and from what each sublayer adds", least=0, below=1)
    attention_dropout: float = _setting(0.0, "share dropped from attention patterns", least=0, below=1)
    activation_dropout: float = _setting(0.0, "share dropped inside feed-forward layers", least=0, below=1)
    precision: Precision = _setting(
        "float32",
        "of activations: autocast for bfloat16 and float16, everywhere for pure_bfloat16; masters are float32; auto: "
        "pure_bfloat16, with LoRA bfloat16, where the machine multiplies in it, else float32",
    )
    activation_checkpointing: bool = _setting(False, "compute activations twice instead of keeping them")
    compile: bool = _setting(False, "compile the model with torch.compile")
    average: Literal["none", "ema", "last"] = _setting(
        "none", "what is evaluated and kept: the weights, their moving average, or the mean of the last snapshots"
    )
    ema_decay: float = _setting(0.999, "ema: memory of the average, a step", least=0, below=1)
    average_last: int = _setting(10, "last: snapshots in the mean", above=0)
    average_every: int = _setting(100, "last: steps from one snapshot to the next", above=0)
    save_every: int = _setting(500, "steps from one saved state to the next; the last step is always saved", above=0)
    keep: int = _setting(2, "saved states that stay", above=0)
    log_every: int = _setting(10, "steps from one line of display to the next", above=0)
    threads: int | None = _setting(None, "processor threads; none: torch's choice", above=0)
    out: str | None = _setting(None, "the folder of the run; none: the recipe's name under runs/")
    parallel: str = _setting("data", "across processes: 'data', 'fsdp', or 'tensor:N', N processes a model")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """[evaluate]: what is measured, how often, and when measuring says to stop."""

    every: int | None = _setting(None, "steps from one evaluation to the next; none: at the end of each epoch", above=0)
    batches: int | None = _setting(
        None, "batches of an evaluation's loss, at most; none: all; texts are translated all", above=0
    )
    metrics: tuple[str, ...] = _setting(
        (),
        "of loss, perplexity, bits_per_byte, accuracy, bleu, chrf, the first decides which is best; none: loss, and "
        "perplexity or for classes accuracy",
    )
    tokenize: str = _setting("13a", "bleu: sacrebleu's tokenisation; zh for Chinese")
    beams: int = _setting(4, "bleu, chrf: beams of the search", above=0)
    length_penalty: float = _setting(1.0, "bleu, chrf: log-probability / length ** this ranks beams")
    patience: int | None = _setting(None, "stop after so many evaluations without a better one; none: never", above=0)
    samples: int = _setting(0, "outputs shown with each evaluation", least=0)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run in words."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    objective: Objective = field(default_factory=Objective)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    run: Run = field(default_factory=Run)
    evaluate: Evaluate = field(default_factory=Evaluate)

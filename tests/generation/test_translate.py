"""Translate: as many lines out as in, nothing dropped, each what it is alone; faults of translation by their ids."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

import plait
from plait import Architecture, Checkpoint, DecodeRules, PlaitNotice, Translation, translate, translate_lines
from plait.generation import GenerationError, ModelRunner
from plait.text import Tokenizer, load_tokenizer, train_tokenizer
from tests.generation.making import random_model

SIZE: dict[str, Any] = {"d_model": 16, "n_heads": 4, "d_ff": 24, "max_length": 64}
LINES = ["a dog", "", "the cat sat on the mat", "  ", "\u200b", "mice", "she saw him"]


def characters(**names: Any) -> Tokenizer:
    """One token a character, and an end behind every text."""
    return train_tokenizer(["abcdefghijklmnopqrstuvwxyz ABC.!?,:\n"] * 2, kind="characters", after=("eos",), **names)


def translator(*, decoder: bool = False, **rules: Any) -> Checkpoint:
    tokenizer = characters()
    towers = {} if decoder else {"n_encoder_layers": 2}
    a = Architecture(vocab_size=len(tokenizer), n_decoder_layers=2, position="sinusoidal", **towers, **SIZE)
    assert tokenizer.eos is not None
    known = {"start": tokenizer.pad, "end": (tokenizer.eos,), "banned": ((tokenizer.pad,),), "max_new_tokens": 7}
    model = random_model(a).float()
    return Checkpoint(architecture=a, model=model, tokenizer=tokenizer, rules=DecodeRules(**{**known, **rules}))


class Listening(ModelRunner):
    """The plain model, and every source that it was given to read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.model)
        self.tokenizer, self.batches = checkpoint.tokenizer, []

    def prefill(self, tokens: Tensor, cache: Any, **inputs: Any) -> Tensor:
        source, mask = inputs["source"], inputs["source_mask"]
        rows = source.tolist() if mask is None else [row[m].tolist() for row, m in zip(source, mask, strict=True)]
        self.batches.append(rows)
        return super().prefill(tokens, cache, **inputs)

    @property
    def read(self) -> list[str]:
        return [self.tokenizer.decode(row, skip_specials=True) for batch in self.batches for row in batch]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """A random model rarely ends: that it was cut off is said, and is no matter here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reached its limit", category=PlaitNotice)
        yield


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("batch_tokens, window", [(1, 16), (16, 2), (16, 1), (1000, 16)])
def test_tl1_as_many_lines_out_as_in_and_blank_ones_ask_nobody(batch_tokens: int, window: int, beams: int) -> None:
    checkpoint = translator()
    runner = Listening(checkpoint)
    alone = [translate(checkpoint, line, beams=beams, runner=runner) for line in LINES]
    assert len(runner.read) == 4
    runner.batches.clear()
    options: Any = {"batch_tokens": batch_tokens, "window": window, "beams": beams, "runner": runner}
    found = list(translate_lines(checkpoint, iter(LINES), **options))
    assert [one.text for one in found] == [one.text for one in alone if isinstance(one, Translation)]
    assert [one.parts for one in found] == [1, 0, 1, 0, 0, 1, 1]
    assert [bool(one.text) for one in found] == [bool(one.parts) for one in found]
    assert sorted(runner.read) == sorted(line for line in LINES if line.strip() not in ("", "\u200b"))
    assert translate(checkpoint, []) == [] and runner.batches


def test_batches_are_neighbours_in_length_and_hold_their_tokens() -> None:
    checkpoint = translator()
    lines = ["a" * n for n in (3, 30, 4, 31, 5, 29, 2, 32)]
    runner = Listening(checkpoint)
    found = list(translate_lines(checkpoint, lines, batch_tokens=99, runner=runner, max_new_tokens=2))
    assert [[len(row) for row in batch] for batch in runner.batches] == [[33, 32, 31], [30, 6, 5], [4, 3]]
    assert [one.parts for one in found] == [1] * 8


def test_tl3_over_long_lines_are_cut_and_the_end_counts() -> None:
    checkpoint = translator()
    lines = ["abcdef", "abcdefg", "abcdefgh", "abcd fghi"]
    runner = Listening(checkpoint)
    with pytest.warns(PlaitNotice, match=r"^lines 3, 4: too long for the 8 tokens") as said:
        found = list(translate_lines(checkpoint, lines, longest=8, runner=runner))
    assert [one.parts for one in found] == [1, 1, 2, 2] and len([w for w in said if "too long" in str(w.message)]) == 1
    assert max(len(row) for batch in runner.batches for row in batch) == 8
    assert runner.read == ["abcdefg", "abcdefg", "abcdef", "abcd", "fghi", "h"]  # the longest first
    parts = [translate(checkpoint, text) for text in ("abcdefg", "h")]
    assert found[2].text == " ".join(one.text.strip() for one in parts if isinstance(one, Translation)).strip()


def test_tl3_what_the_model_has_positions_for_is_the_limit() -> None:
    checkpoint = translator()
    text = "a cat sat. " * 12
    runner = Listening(checkpoint)
    with pytest.warns(PlaitNotice, match="too long for the 64 tokens"):
        (found,) = translate_lines(checkpoint, [text], runner=runner)
    assert found.parts == 3 and runner.read == [("a cat sat. " * n).strip() for n in (5, 5, 2)]
    with pytest.raises(GenerationError, match="longest: 65 tokens are more than the 64"):
        translate(checkpoint, text, longest=65)
    with pytest.raises(GenerationError, match="longest: 1 tokens do not hold 'a'"):
        translate(checkpoint, text, longest=1)


class FirstSentence(Listening):
    """Answers a source with what stands before its first full stop, that included, and ends."""

    def prefill(self, tokens: Tensor, cache: Any, **inputs: Any) -> Tensor:
        super().prefill(tokens, cache, **inputs)
        stop = self.tokenizer.id(".")
        self.scripts = [[*row[: row.index(stop) + 1], self.tokenizer.eos] for row in self.batches[-1]]
        self.at = 0
        cache.scripts = self.scripts
        reorder = cache.reorder

        def reordered(rows: Tensor) -> None:
            reorder(rows)
            cache.scripts = [cache.scripts[i] for i in rows.tolist()]

        cache.reorder = reordered
        return self._said(cache)[:, None]

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        self.at += 1
        return self._said(cache)

    def _said(self, cache: Any) -> Tensor:
        logits = torch.zeros(len(cache.scripts), self.architecture.vocab_size)
        logits[range(len(cache.scripts)), [script[self.at] for script in cache.scripts]] = 99.0
        return logits


def test_tl4_a_line_answered_for_its_first_sentence_is_named_or_split() -> None:
    checkpoint = translator()
    line = "Aa. Bb? Cc. A dog. B cat! C mouse."
    runner = FirstSentence(checkpoint)
    with pytest.warns(PlaitNotice, match=r"^line 2: fewer sentences came out .* split='sentences'"):
        found = list(translate_lines(checkpoint, ["Aa.", line, "Bb."], runner=runner))
    assert [one.text for one in found] == ["Aa.", "Aa.", "Bb."]
    line = line.replace("?", ".").replace("!", ".")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = translate_lines(checkpoint, [line], runner=runner, split="sentences", max_new_tokens=12)
    assert found.text == line and found.parts == 6


def test_tl11_a_last_piece_that_would_be_joined_keeps_its_text(tmp_path: Any) -> None:
    """Words of Sennrich's pieces end in </w>; the model stops within one."""
    names = ["<pad>", "</s>", "a", "d", "S", "-", "d</w>", "Sa", "Sa-", "Sad</w>", "<unk>"]
    merges = [("S", "a"), ("Sa", "-"), ("Sa", "d</w>")]
    words = Library(models.BPE(dict(zip(names, range(11), strict=True)), merges, end_of_word_suffix="</w>"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Whitespace(), decoders.Replace("</w>", " ")
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None and tokenizer.encode("Sad") == [9]
    a = Architecture(vocab_size=11, n_encoder_layers=1, n_decoder_layers=1, position="sinusoidal", **SIZE)
    rules = DecodeRules(start=0, forced_first=8, max_new_tokens=1)
    checkpoint = Checkpoint(architecture=a, model=random_model(a).float(), tokenizer=tokenizer, rules=rules)
    for beams in (1, 2):
        found = translate(checkpoint, "Sad", beams=beams)
        assert isinstance(found, Translation) and (found.text, found.finish) == ("Sa-", "length")


def test_n_best_are_those_of_generate_best_first() -> None:
    checkpoint = translator()
    found = translate(checkpoint, ["a dog", "", "mice"], beams=4, n_best=3, length_penalty=0.5)
    assert isinstance(found, list)
    for line, one in zip(("a dog", "mice"), (found[0], found[2]), strict=True):
        expected: Any = plait.generate(checkpoint, line, beams=4, n_best=3, length_penalty=0.5)
        assert [text for text, _ in one.candidates] == [e.text.replace("\n", " ").strip() for e in expected]
        assert [score for _, score in one.candidates] == pytest.approx([e.score for e in expected], abs=1e-4)
        assert (one.text, one.score) == one.candidates[0]
    assert found[1] == Translation(text="", candidates=(("", None),))


def test_a_newline_that_is_written_is_a_space() -> None:
    checkpoint = translator()
    assert checkpoint.tokenizer is not None
    newline = checkpoint.tokenizer.id("\n")
    a = checkpoint.tokenizer.encode("a", specials=False)[0]
    runner = FirstSentence(checkpoint)
    runner._said = lambda cache: torch.eye(runner.architecture.vocab_size)[  # type: ignore[method-assign]
        [[a, newline, a, checkpoint.tokenizer.eos][runner.at]] * len(cache.scripts)  # type: ignore[union-attr]
    ]
    (found,) = translate_lines(checkpoint, ["A."], runner=runner)
    assert found.text == "a a"


def test_a_limit_that_cuts_a_translation_off_is_said() -> None:
    checkpoint = translator(end=(), banned=(), max_new_tokens=None)
    checkpoint = dataclasses.replace(checkpoint, rules=dataclasses.replace(checkpoint.rules, end=()))
    assert checkpoint.tokenizer is not None
    wordless = dataclasses.replace(checkpoint.rules, banned=((checkpoint.tokenizer.eos or 0,),))
    checkpoint = dataclasses.replace(checkpoint, rules=wordless)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = list(translate_lines(checkpoint, ["", "a"], max_new_tokens=5))
    assert found[1].finish == "length" and "line 2: the translation reached its limit" in str(said[0].message)
    unbounded = translate(checkpoint, "abc")
    assert isinstance(unbounded, Translation) and unbounded.finish == "length"  # twice 4 tokens and 50: it ends


def test_a_template_goes_around_every_part() -> None:
    checkpoint = translator()
    runner = Listening(checkpoint)
    with pytest.warns(PlaitNotice, match="too long"):
        list(translate_lines(checkpoint, ["aaaa bbbb"], template="to C: {}!", longest=13, runner=runner))
    assert runner.read == ["to C: aaaa!", "to C: bbbb!"]
    with pytest.raises(GenerationError, match="template: 'to C' must have one place"):
        translate(checkpoint, "a", template="to C")


def test_a_decoder_goes_on_from_its_template_to_the_end_of_the_line() -> None:
    checkpoint = translator(decoder=True)
    found = translate(checkpoint, ["a dog", "", "the mouse"], template="A: {}\nB:")
    assert isinstance(found, list)
    for line, one in zip(("a dog", "the mouse"), (found[0], found[2]), strict=True):
        prompt = f"A: {line}\nB:"
        expected: Any = plait.generate(checkpoint, prompt, stop="\n")
        assert one.text == expected.text.strip()
    with pytest.raises(GenerationError, match="alignments: a decoder has no cross-attention"):
        translate(checkpoint, "a", alignments=True)


def test_mistakes_are_refused_at_the_call() -> None:
    checkpoint = translator()
    for options, message in (
        ({"split": "words"}, "split: 'words' is neither"),
        ({"window": 0}, "window: 0 makes no sense"),
        ({"batch_tokens": 0}, "batch_tokens: 0 makes no sense"),
        ({"beams": 2, "n_best": 3}, "n_best: 3 is more than 2 beams"),
        ({"target_language": "fr"}, "target_language: this tokenizer has no code 'fr'; it puts the code of no"),
    ):
        with pytest.raises(GenerationError, match=message):
            translate_lines(checkpoint, iter(()), **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean 'beams'"):
        translate_lines(checkpoint, iter(()), beam=3)  # type: ignore[call-arg]


def places(model: Any, source: Sequence[int], written: Sequence[int], start: int, layer: int) -> Tensor:
    """The reference's cross-attention, heads averaged."""
    out = model(
        torch.tensor([source]), decoder_input_ids=torch.tensor([[start, *written[:-1]]]), output_attentions=True
    )
    return out.cross_attentions[layer][0].mean(0)


@pytest.fixture(scope="module")
def marian(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A toy Marian whose end is not id 0, as the reference writes it, with a tokenizer beside it."""
    folder, tokenizer = tmp_path_factory.mktemp("marian"), characters()
    torch.manual_seed(3)
    config = reference.MarianConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=1,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad,
        decoder_start_token_id=tokenizer.pad,
        eos_token_id=tokenizer.eos,
        forced_eos_token_id=tokenizer.eos,
        init_std=0.5,
        scale_embedding=True,
        attn_implementation="eager",
    )
    model = reference.MarianMTModel(config).eval()
    model.final_logits_bias[0, tokenizer.pad] = 9.0  # what is likeliest, unless it is banned
    model.generation_config.update(bad_words_ids=[[tokenizer.pad]], num_beams=3, max_length=12)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model, plait.load(folder)


def test_tl10_a_converted_marian_starts_bans_and_ends_as_its_files_say(marian: Any) -> None:
    model, checkpoint = marian
    rules, tokenizer = checkpoint.rules, checkpoint.tokenizer
    assert rules.start == tokenizer.pad == 0 and rules.end == (2,) and rules.banned == ((0,),)
    lines = ["a dog", "the cat sat on the mat", "", "mice"]
    found = translate(checkpoint, lines)
    assert isinstance(found, list)
    for line, one in zip(lines, found, strict=True):
        expected = model.generate(torch.tensor([tokenizer.encode(line)]))[0, 1:].tolist() if line else []
        assert one.text == tokenizer.decode(expected, skip_specials=True).strip(), line
        assert 0 not in expected
    for wrong in ({"start": 2}, {"banned": ()}):  # these inputs would show it
        other: Any = translate(dataclasses.replace(checkpoint, rules=dataclasses.replace(rules, **wrong)), lines)
        assert [one.text for one in other] != [one.text for one in found]


def test_alignments_are_the_references_cross_attention(marian: Any) -> None:
    model, theirs = marian
    tokenizer = theirs.tokenizer
    lines = ["a dog", "", "the cat sat", "Aa. Bb. Cc."]
    found = translate(theirs, lines, alignments=True, beams=1, split="sentences", runner=ModelRunner(theirs.model))
    assert isinstance(found, list) and found[1].alignment == ()
    for line, one in zip(lines[:3:2], found[:3:2], strict=True):
        source = tokenizer.encode(line)
        again: Any = plait.generate(theirs, line, beams=1)
        attention = places(model, source, again.tokens, 0, 1)[:, : len(source) - 1]
        kept = [j for j, id in enumerate(again.tokens) if id not in tokenizer.special_ids]
        assert one.alignment == tuple((int(attention[j].argmax()), n) for n, j in enumerate(kept)) != ()
        assert one.source_tokens == tuple(tokenizer.token(id) for id in source[:-1])
        assert one.target_tokens == tuple(tokenizer.token(again.tokens[j]) for j in kept)
    assert found[3].source_tokens == tuple("Aa.Bb.Cc.") and found[3].parts == 3
    assert {i // 3 for i, _ in found[3].alignment} == {0, 1, 2}

"""generate and stream: ends, stop strings, text, logprobs; models that say what they are told."""

from __future__ import annotations

import gc

import pytest
import torch

from plait.checkpoint import DecodeRules
from plait.generation import Generation, GenerationError, ModelRunner, Piece, Scheduler, embed, generate, stream
from plait.model import Transformer
from tests.generation.making import ROPE, TRANSLATOR, Scripted, ToyTokenizer, checkpoint, random_model, same, saying

ENDS = DecodeRules(end=(1, 6))


def joined(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize("said", [1, 6])
def test_ge1_any_end_id_ends_a_row(said: int) -> None:
    done = generate(checkpoint(saying([4, 5, said, 7]), ENDS), [2], max_new_tokens=9)
    assert (done.tokens, done.finish) == ([4, 5, said], "end")


def test_ge1_the_tokenizers_end_joins_those_of_the_rules() -> None:
    tokenizer = ToyTokenizer(["a"] * 8, eos=5)
    for said in (1, 5, 6):
        done = generate(checkpoint(saying([4, 7, said, 7]), ENDS, tokenizer), [2], max_new_tokens=9)
        assert done.tokens == [4, 7, said]


def test_ge1_the_callers_ends_may_be_an_int_or_a_list() -> None:
    for end in (5, [5], (5, 3), torch.tensor([5]).tolist()):
        done = generate(checkpoint(saying([4, 1, 5, 7]), ENDS), [2], max_new_tokens=9, end=end)
        assert (done.tokens, done.finish) == ([4, 1, 5], "end")
    with pytest.raises(GenerationError, match="end: 32 is no token id"):
        generate(checkpoint(saying([4])), [2], end=[32])


def test_ge1_an_end_that_a_small_vocabulary_does_not_have_ends_nothing() -> None:
    done = generate(checkpoint(saying([4, 7, 1, 5]), DecodeRules(end=(50256, 1))), [2], max_new_tokens=9)
    assert (done.tokens, done.finish) == ([4, 7, 1], "end")


def test_ge2_ignored_ends_are_all_ignored() -> None:
    tokenizer = ToyTokenizer(["a"] * 8, eos=5)
    model = checkpoint(saying([1, 6, 5, 1, 6, 5, 4, 4]), ENDS, tokenizer)
    done = generate(model, [2], max_new_tokens=8, ignore_end=True)
    assert (done.tokens, done.finish) == ([1, 6, 5, 1, 6, 5, 4, 4], "length")
    with pytest.raises(GenerationError, match="end, ignore_end"):
        generate(model, [2], end=3, ignore_end=True)


def test_ge3_stream_and_generate_stop_at_the_same_place() -> None:
    model = checkpoint(saying([4, 5, 6, 7]), ENDS)
    assert [piece.token for piece in stream(model, [2], max_new_tokens=9)] == [4, 5, 6]
    assert [g.tokens for g in generate(model, [[2], [3]], max_new_tokens=9)] == [[4, 5, 6]] * 2


PIECES = ["<s>", "</s>", "DEF", "G", "HI", "J", "a", "b", "c", "x"]
WORDS = ToyTokenizer(PIECES, bos=0, eos=1)


def both(said: list[int], tokenizer: ToyTokenizer = WORDS, **options: object) -> tuple[list[Piece], Generation]:
    model = checkpoint(saying(said), tokenizer=tokenizer)
    pieces = list(stream(model, [0], max_new_tokens=len(said), **options))  # type: ignore[arg-type]
    done = generate(model, [0], max_new_tokens=len(said), **options)  # type: ignore[arg-type]
    assert isinstance(done, Generation)
    assert joined(pieces) == done.text
    assert [piece.token for piece in pieces] == done.tokens
    assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [done.finish]
    return pieces, done


def test_ge19_a_stop_string_over_several_tokens() -> None:
    pieces, done = both([9, 2, 3, 4, 5, 6], stop="DEFGHIJ")
    assert [piece.text for piece in pieces] == ["x", "", "", "", ""]
    assert (done.text, done.tokens, done.finish) == ("x", [9, 2, 3, 4, 5], "stop")
    pieces, done = both([6, 8], stop=["ab"])
    assert [piece.text for piece in pieces] == ["", "ac"]
    assert (done.text, done.finish) == ("ac", "length")
    _, done = both([9, 6, 1, 7], stop=["ab"])
    assert (done.text, done.finish) == ("xa", "end"), "what was held back comes out at the end"
    _, done = both([9, 2, 3, 4, 5], stop=["HIJ", "never"])
    assert (done.text, done.finish) == ("xDEFG", "stop"), "a stop met with the very last token is a stop"


def test_ge19_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(GenerationError, match="stop: without a tokenizer"):
        generate(checkpoint(saying([1])), [2], stop="a")
    with pytest.raises(GenerationError, match="stop: an empty string"):
        generate(checkpoint(saying([1]), tokenizer=WORDS), [2], stop=["a", ""])


def test_ge21_stops_are_matched_on_true_text() -> None:
    spaced = ToyTokenizer(["<s>", "</s>", "▁the", "▁end", "▁of", "s", "▁it"], bos=0, eos=1)
    said = [2, 3, 4, 6, 5]  # "the end of it" + "s"
    assert both(said, spaced)[1].text == "the end of its"
    for stops, text in (
        ([" of it", "endof"], "the end"),
        ([" its", "d o"], "the en"),
        (["theend", "ofit"], "the end of its"),
    ):
        assert both(said, spaced, stop=stops)[1].text == text
    model = checkpoint(saying([3, 4], n_prompt=2), tokenizer=spaced)
    assert generate(model, [0, 2], max_new_tokens=2).text == " end of", "behind a word the space is real"
    assert generate(model, [0, 2], max_new_tokens=2, stop=" end").text == ""


def test_characters_over_several_tokens_come_whole() -> None:
    bytewise = ToyTokenizer([bytes([i]) for i in range(256)], bos=0, eos=1)
    text = "ď각👍🏽👨‍👩‍👧‍👦."
    said = list(text.encode())
    wide = ROPE.replace(vocab_size=256)
    model = checkpoint(saying(said, architecture=wide.replace(max_length=128)), tokenizer=bytewise)
    pieces = list(stream(model, [2], max_new_tokens=len(said)))
    assert joined(pieces) == text
    assert not any("\ufffd" in piece.text for piece in pieces)
    assert [piece.offset for piece in pieces][:6] == [0, 0, 1, 1, 1, 2]
    cut = generate(model, [2], max_new_tokens=4)
    assert (cut.text, cut.finish) == ("ď\ufffd", "length")
    assert generate(model, [2], max_new_tokens=99, stop="👍").text == "ď각"


def test_special_tokens_have_no_text() -> None:
    marked = ToyTokenizer(["<s>", "</s>", "a", "<mark>", "b"], bos=0, eos=1, specials=(3,))
    _, done = both([2, 3, 4, 1], marked)
    assert (done.text, done.tokens) == ("ab", [2, 3, 4, 1])
    assert done.offsets == [0, 1, 1, 2]


def test_ge22_prompt_and_new_logprobs_with_echo() -> None:
    inner = random_model(ROPE)
    tokenizer = ToyTokenizer([f"{i:02d}" for i in range(32)])
    model = checkpoint(inner, tokenizer=tokenizer)
    prompt = [5, 6, 7, 8]
    done = generate(model, prompt, max_new_tokens=2, echo=True)
    assert len(done.tokens) == len(done.logprobs) == len(done.offsets) == 6
    assert done.tokens[:4] == prompt
    assert done.logprobs[0] is None
    exact = inner(torch.tensor([done.tokens])).log_softmax(-1)[0]
    assert done.logprobs[1:] == pytest.approx([exact[i, done.tokens[i + 1]].item() for i in range(5)], abs=1e-9)
    assert done.offsets == [0, 2, 4, 6, 8, 10]
    assert done.text == "05060708" + "".join(f"{t:02d}" for t in done.tokens[4:])
    pieces = list(stream(model, prompt, max_new_tokens=2, echo=True))
    assert [p.logprob for p in pieces] == done.logprobs
    assert [p.offset for p in pieces] == done.offsets
    assert joined(pieces) == done.text
    assert same(generate(model, prompt, max_new_tokens=2, echo=True, prefill_chunk=3), done)
    batch = generate(model, [prompt, [9], [1, 2]], max_new_tokens=2, echo=True, prefill_chunk=2)
    assert same(batch, [generate(model, p, max_new_tokens=2, echo=True) for p in (prompt, [9], [1, 2])])
    plain = generate(model, prompt, max_new_tokens=2)
    assert plain.logprobs == pytest.approx(done.logprobs[4:], abs=1e-9)


def test_ge22_a_stop_string_in_the_prompt_stops_nothing() -> None:
    model = checkpoint(saying([7, 6, 7], n_prompt=2), tokenizer=WORDS)
    done = generate(model, [6, 7], max_new_tokens=3, echo=True, stop="ab")
    assert (done.text, done.finish) == ("abb", "stop")


def test_logprobs_are_the_models_own_whatever_the_rules_do() -> None:
    logits = [0.0, 1.0, 5.0, 2.0]
    small = ROPE.replace(vocab_size=4)
    model = checkpoint(Scripted(lambda p: logits, small))
    done = generate(model, [0], max_new_tokens=1, banned=[2], temperature=0.01, top_k=1, alternatives=2)
    raw = torch.tensor(logits).log_softmax(-1)
    assert done.tokens == [3]
    assert done.logprobs == pytest.approx([raw[3].item()])
    assert [token for token, _ in done.alternatives[0]] == [2, 3]
    assert [value for _, value in done.alternatives[0]] == pytest.approx([raw[2].item(), raw[3].item()])


def test_the_checkpoints_rules_decide_what_is_left_open() -> None:
    inner = random_model(ROPE)
    greedy = generate(checkpoint(inner), [1, 2], max_new_tokens=8).tokens
    sampling = checkpoint(inner, DecodeRules(sample=True, temperature=1.5, top_k=20))
    assert generate(sampling, [1, 2], max_new_tokens=8, seed=3).tokens != greedy
    assert generate(sampling, [1, 2], max_new_tokens=8, temperature=0).tokens == greedy
    assert generate(sampling, [1, 2], max_new_tokens=8, top_k=1).tokens == greedy
    penal = checkpoint(inner, DecodeRules(repetition_penalty=4.0))
    assert generate(penal, [1, 2], max_new_tokens=8).tokens != greedy
    assert generate(penal, [1, 2], max_new_tokens=8, repetition_penalty=1.0).tokens == greedy
    assert (
        generate(checkpoint(inner, DecodeRules(banned=((greedy[0],),))), [1, 2], max_new_tokens=8).tokens[0]
        != greedy[0]
    )
    assert len(generate(checkpoint(inner, DecodeRules(max_new_tokens=3)), [1, 2]).tokens) == 3


def test_a_stream_may_be_closed_at_any_token() -> None:
    model = saying([4] * 30)
    pieces = stream(checkpoint(model), [2], max_new_tokens=30)
    for _ in range(3):
        next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    gc.collect()
    assert model.calls == 3
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert generate(checkpoint(model), [2], max_new_tokens=2).tokens == [4, 4]


def test_between_pieces_the_callers_torch_is_as_they_left_it() -> None:
    pieces = stream(checkpoint(random_model(ROPE)), [2], max_new_tokens=3)
    next(pieces)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("field", ["forced_first", "forced_last", "bos"])
@pytest.mark.parametrize("token", [32, -1, True])
def test_a_rule_with_an_id_outside_the_vocabulary_is_refused_before_any_work(field: str, token: int) -> None:
    model = saying([4])
    with pytest.raises(GenerationError, match=f"rules.{field}: {token} is no token id; give whole numbers from 0 to"):
        stream(checkpoint(model, DecodeRules(**{field: token})), torch.tensor([]))
    assert model.calls == 0


def test_misuse_is_refused_in_one_sentence() -> None:
    model = checkpoint(saying([4]))
    with pytest.raises(TypeError, match="max_tokens: there is no such option; did you mean 'max_new_tokens'"):
        generate(model, [2], max_tokens=3)  # type: ignore[call-arg]
    with pytest.raises(GenerationError, match="a list of prompts cannot be streamed"):
        stream(model, [[2], [3]])
    with pytest.raises(GenerationError, match="seed: 2 seeds for 1 prompts"):
        generate(model, [2], seed=[1, 2])
    with pytest.raises(GenerationError, match="seed: -1 makes no sense"):
        generate(model, [2], seed=-1)
    with pytest.raises(GenerationError, match="repetition_penalty: 0 makes no sense"):
        generate(model, [2], repetition_penalty=0)
    with pytest.raises(GenerationError, match="frequency_penalty: 1e\\+308 makes no sense"):
        generate(model, [2], frequency_penalty=1e308)
    with pytest.raises(GenerationError, match="prefill_chunk: 0 makes no sense"):
        generate(model, [2], prefill_chunk=0)
    with pytest.raises(GenerationError, match="banned: 99 is no token id"):
        generate(model, [2], banned=[99])


def test_weights_that_are_not_in_memory_are_refused_with_who_has_them() -> None:
    with torch.device("meta"):
        lazy = checkpoint(Transformer(ROPE))
    for ask in (generate, stream, embed, lambda lazy, _: Scheduler(ModelRunner(lazy.model))):
        with pytest.raises(GenerationError, match=r"weights are not in memory .* runner=plait.optimize\(checkpoint\)"):
            ask(lazy, [1, 2])


def test_a_runner_that_is_none_or_of_another_model_is_refused() -> None:
    model = checkpoint(random_model(ROPE))
    others = {
        "runner: SimpleNamespace is no runner; give plait.optimize": model,
        "runner: Transformer is no runner": model.model,
        "they differ in vocab_size; give plait.optimize": ModelRunner(random_model(ROPE.replace(vocab_size=40))),
        "they differ in .*n_encoder_layers": ModelRunner(random_model(TRANSLATOR)),
    }
    for said, runner in others.items():
        for ask in (generate, stream, embed):
            with pytest.raises(GenerationError, match=said):
                ask(model, [1, 2], runner=runner)
    with pytest.raises(GenerationError, match="runner: ModelRunner has no states to pool; give plait.optimize"):
        embed(model, [1, 2], runner=ModelRunner(model.model))  # type: ignore[arg-type]
    again = random_model(ROPE)  # what matters is the architecture
    assert same(generate(model, [1, 2], runner=ModelRunner(again)), generate(model, [1, 2]))

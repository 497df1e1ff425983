"""The worked numbers about sizes and passes, and the claims about them that circulate and are wrong."""

import json
from math import prod

import pytest
import torch

from plait.account import account
from plait.account.tensors import multiplies
from plait.architecture import Architecture
from plait.model import Cache, Transformer
from plait.presets import PRESETS, preset

BASE = preset("vaswani-base")


def projections(architecture, within=""):
    """Parameters of the matrices whose name contains ``within``: no table, bias or norm."""
    named = account(architecture).tensors.items()
    return sum(prod(shape) for name, shape in named if multiplies(name) and within in name)


def test_a1_the_ffn_is_two_thirds_of_a_block():
    for name in ("gpt2", "gpt3-175b", "bert-base"):
        a = preset(name)
        assert a.d_ff == 4 * a.d_model
        attention, ffn = projections(a, ".layers.0.attention."), projections(a, ".layers.0.ffn.")
        assert (attention, ffn) == (4 * a.d_model**2, 8 * a.d_model**2)
        assert 3 * ffn == 2 * (attention + ffn)


def test_a2_the_layers_of_the_base_model():
    assert projections(BASE, "encoder.layers.0.attention.") == 1_048_576
    assert projections(BASE, "encoder.layers.0.ffn.") == 2_097_152
    assert projections(BASE, "encoder.layers.0.") == 3_145_728
    assert projections(BASE, "decoder.layers.0.") == 4_194_304
    assert projections(BASE, "decoder.layers.0.cross.") == 1_048_576


def test_a3_the_two_towers_of_the_base_model():
    assert projections(BASE, ".layers.") == 44_040_192
    assert projections(BASE, ".cross.") == account(BASE).by_part["cross"] == 6_291_456


def test_a4_the_tables_of_the_base_model():
    table = account(BASE).by_part["embedding"]
    assert table == 18_944_000
    assert projections(BASE) + table == 62_984_192
    apart = BASE.replace(tied=False)
    assert projections(apart) + account(apart).by_part["embedding"] == 81_928_192


def test_a5_biases_and_norms_of_the_base_model_by_name():
    with torch.device("meta"):
        live = {name: p.numel() for name, p in Transformer(BASE).named_parameters()}
    norms = {name: n for name, n in live.items() if "_norms." in name}
    biases = {name: n for name, n in live.items() if name.endswith(".bias") and name not in norms}
    attention = {name: n for name, n in biases.items() if ".ffn." not in name}
    # 30 norms (2 an encoder layer, 3 a decoder layer), a weight and a bias of 512 each
    assert (len(norms), sum(norms.values())) == (60, 30_720)
    # 18 attentions (6 of the encoder, 12 of the decoder), four biases of 512 each
    assert (len(attention), sum(attention.values())) == (72, 36_864)
    # 12 feed-forwards, 2,048 and 512 each
    assert sum(biases.values()) - sum(attention.values()) == 12 * (2_048 + 512) == 30_720
    assert sum(live.values()) - 62_984_192 == sum(norms.values()) + sum(biases.values()) == 98_304


def test_a6_a_block_of_width_4096():
    a = Architecture(vocab_size=32000, d_model=4096, n_heads=32, d_ff=4 * 4096, n_decoder_layers=32)
    assert projections(a, ".layers.0.") == 12 * 4096**2 == 201_326_592
    assert projections(a, ".layers.") == 6_442_450_944


def test_a7_llama_2_7b():
    counts = account(preset("llama-2-7b"))
    assert counts.parameters == 6_738_415_616
    assert counts.by_part["embedding"] == counts.by_part["head"] == 131_072_000
    assert round(100 * counts.by_part["embedding"] / counts.parameters, 3) == 1.945


@pytest.mark.parametrize("cached", [True, False])
def test_a8_translating_three_words(cached):
    """Counted as the layers of a live 6 + 6 model are run, and on paper."""
    a = BASE.replace(vocab_size=32, d_model=16, n_heads=2, d_ff=20)
    model, cache = Transformer(a), Cache(a, 1) if cached else None
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    passes = {"encoder": 0, "decoder": 0}

    def count(tower):
        def hook(*_):
            passes[tower] += 1

        return hook

    for tower in passes:
        for layer in getattr(model, tower).layers:
            layer.register_forward_hook(count(tower))
    source, written = torch.tensor([[4, 5, 6]]), torch.tensor([[1]])
    with torch.no_grad():
        if cached:
            for step in range(3):
                logits = model(written[:, -1:], cache=cache, source=source if step == 0 else None)
                written = torch.cat((written, logits[:, -1:].argmax(-1)), dim=1)
        else:
            memory = model.encode(source)
            model.encode = lambda *_: memory
            for _ in range(3):
                written = torch.cat((written, model(written, source=source)[:, -1:].argmax(-1)), dim=1)
    assert passes == account(a).layer_passes(3) == {"encoder": 6, "decoder": 18}


def test_claim_that_a_cache_changes_the_number_of_passes():
    """Wrong: it changes the work in a pass. Ours says so by asking for no cache at all in ``layer_passes``."""
    counts = account(BASE)
    with_cache, without = (
        [counts.token_flops(position, source_length=3, cached=cached).total for position in range(3)]
        for cached in (True, False)
    )
    assert all(less < more for less, more in zip(with_cache, without, strict=True))
    growth = with_cache[2] - with_cache[0]  # two more keys to attend to, in each of 6 layers, 512 wide
    assert growth == 2 * (2 * 2 * 512) * 6


def test_claim_that_tying_saves_a_fifth_of_llama():
    """Wrong: a 32,000 x 4,096 table is 131 M, 1.9 % of Llama 2 7B, not 500 M."""
    a = preset("llama-2-7b")
    saved = account(a).parameters - account(a.replace(tied=True)).parameters
    assert saved == 32_000 * 4_096 == 131_072_000
    assert 0.019 < saved / account(a).parameters < 0.02


def test_claim_that_llama_and_mistral_tie():
    """Wrong: they do not; these do."""
    untied = (
        "llama-7b",
        "llama-2-7b",
        "llama-3-8b",
        "mistral-7b",
        "pythia-70m",
        "t5-v1.1-base",
        "qwen2.5-7b",
        "qwen3-8b",
    )
    tied = ("gpt2", "bert-base", "t5-base", "marian-en-de", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2-2b")
    assert not any(PRESETS[name].tied for name in untied)
    assert all(PRESETS[name].tied for name in tied)


def test_claim_that_biases_and_norms_explain_63_or_65_million():
    """Wrong: they are a twentieth of that gap."""
    parts = account(BASE).by_part
    gap = 65_000_000 - account(BASE).parameters
    assert parts["norms"] + parts["biases"] < 0.06 * gap


def test_rows_are_the_whole():
    for name in ("vaswani-base", "bert-base", "gemma-2-2b"):
        *rows, total = account(PRESETS[name]).rows(length=64)
        assert total.part == "total"
        assert sum(row.parameters for row in rows) == total.parameters == account(PRESETS[name]).parameters
        assert sum(row.bytes for row in rows) == total.bytes == account(PRESETS[name]).bytes()
        assert sum(row.flops_per_token for row in rows) == total.flops_per_token
        assert sum(row.share for row in rows) == pytest.approx(1)


def test_everything_can_be_written_as_json():
    data = json.loads(json.dumps(account(BASE).to_dict(length=8)))
    assert data["parameters"] == 63_082_496
    assert data["flops"]["training_step"]["total"] == 3 * data["flops"]["forward"]["total"]
    assert data["tensors"]["embedding.tokens.weight"] == [37_000, 512]
    assert "token_cached" not in account(preset("bert-base")).to_dict()["flops"]


def test_a_checkpoint_or_a_model_will_do():
    with torch.device("meta"):
        model = Transformer(BASE)
    assert account(model) == account(BASE)


def test_counting_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, plait; print(plait.account(plait.preset('gpt2')).parameters); assert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "124439808\n"

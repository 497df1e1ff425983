"""A checkpoint saved as GGUF: what the gguf library finds in the file, and what plait reads back."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import LayerType, Rope, RopeScaling
from plait.checkpoint import CheckpointError, GGUFSource, PlaitNotice, SentencePooling, quantise
from plait.checkpoint.gguf_file import Planned, write_gguf
from plait.families import FamilyError
from tests.checkpoint.gguf_models import ARCHITECTURES, made
from tests.models import random_model

gguf = pytest.importorskip("gguf")

TOKENS = torch.randint(3, 400, (1, 64), generator=torch.Generator().manual_seed(1))
AT = [0, 1, 32, 63]


def read_by_the_library(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and tensors (type, float32 values) as the gguf package finds them."""
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {
        tensor.name: (
            tensor.tensor_type.name,
            torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))),
        )
        for tensor in reader.tensors
    }
    return metadata, tensors


Written = Callable[[str], tuple[Any, Path]]


@pytest.fixture(scope="module")
def written(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """An architecture's checkpoint, and its GGUF file."""

    @cache
    def write(name: str) -> tuple[Any, Path]:
        folder = tmp_path_factory.mktemp(name)
        checkpoint = made(name, reference, folder / "hf")
        return checkpoint, plait.save(checkpoint, folder / f"{name}.gguf", dialect="gguf")

    return write


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_read_back_it_computes_the_same(name: str, written: Written) -> None:
    checkpoint, path = written(name)
    assert GGUFSource(path).metadata["general.architecture"] == ARCHITECTURES[name].arch
    back = plait.load(path)
    with torch.no_grad():
        assert torch.equal(back.model(TOKENS), checkpoint.model(TOKENS))
    assert set(back.architecture.difference(checkpoint.architecture)) <= {"norm_weight", "rope"}
    assert back.rules == plait.DecodeRules(bos=1, end=(2,))
    again = plait.save(back, path.with_name("again.gguf"), dialect="gguf")
    for entry in GGUFSource(path).names:
        assert bytes(GGUFSource(again).raw(entry)) == bytes(GGUFSource(path).raw(entry)), entry


def undone(weight: Tensor, heads: int) -> Tensor:
    """Rows of interleaved pairs back to halves, head by head."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def as_llama(path: Path, heads: int, kv_heads: int) -> dict[str, Tensor]:
    """The tensors of a GGUF llama under the names that transformers gives them, read without plait."""
    layer = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    outside = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    found: dict[str, Tensor] = {}
    for name, (_, tensor) in read_by_the_library(path)[1].items():
        *start, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            tensor = undone(tensor, heads if part == "attn_q" else kv_heads)
        own = outside[part] if not start else f"model.layers.{start[1]}.{layer[part]}"
        found[f"{own}.weight"] = tensor
    return found


def test_ex1_queries_and_keys_are_written_by_their_own_heads(written: Written, reference: ModuleType) -> None:
    """6 heads and 3: keys permuted as if they had the queries' heads would show."""
    checkpoint, path = written("llama")
    theirs, held = as_llama(path, 6, 3), checkpoint.model.state_dict()
    for i in range(3):
        for part, ours in (("q", "query"), ("k", "key")):
            stored = theirs[f"model.layers.{i}.self_attn.{part}_proj.weight"]
            assert torch.equal(stored, held[f"decoder.layers.{i}.attention.{ours}.weight"]), (i, part)


def test_ex3_the_rotation_is_right_to_the_end_of_a_long_text(written: Written, reference: ModuleType) -> None:
    """What the file holds, read without plait, says the same at positions 0, 1, 32 and 63."""
    checkpoint, path = written("llama")
    metadata, _ = read_by_the_library(path)
    config = reference.LlamaConfig(
        vocab_size=metadata["llama.vocab_size"],
        hidden_size=metadata["llama.embedding_length"],
        intermediate_size=metadata["llama.feed_forward_length"],
        num_hidden_layers=metadata["llama.block_count"],
        num_attention_heads=metadata["llama.attention.head_count"],
        num_key_value_heads=metadata["llama.attention.head_count_kv"],
        head_dim=metadata["llama.rope.dimension_count"],
        rms_norm_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        tie_word_embeddings=False,
    )
    theirs = reference.LlamaForCausalLM(config)
    theirs.load_state_dict(as_llama(path, config.num_attention_heads, config.num_key_value_heads))
    with torch.no_grad():
        said, expected = theirs.eval()(TOKENS).logits[0], checkpoint.model(TOKENS)[0]
    for at in AT:
        assert (said[at] - expected[at]).abs().max() < 1e-3, at


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_types_are_of_matrices_and_vectors_stay_in_float32(kind: str, written: Written, tmp_path: Path) -> None:
    for name in ("llama-biased", "gpt2", "qwen2", "starcoder2"):
        checkpoint, whole = written(name)
        path = plait.save(checkpoint, tmp_path / f"{name}.gguf", dialect="gguf", type=kind)
        metadata, tensors = read_by_the_library(path)
        floats = read_by_the_library(whole)[1]
        assert metadata["general.file_type"] == {"F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7}[kind]
        for tensor, (stored, values) in tensors.items():
            flat = values.ndim == 1 or tensor.startswith("position_embd")
            assert stored == ("F32" if flat else kind), tensor
            expected = floats[tensor][1]
            assert torch.equal(values, expected) if flat else (values - expected).norm() < 0.01 * expected.norm()


def test_gemma_norms_hold_one_more(written: Written, reference: ModuleType, tmp_path: Path) -> None:
    """And go back to what they were: the family's own class reads what was made of the GGUF file."""
    for name in ("gemma", "gemma2", "gemma3"):
        checkpoint, path = written(name)
        held = checkpoint.model.state_dict()
        stored = read_by_the_library(path)[1]["blk.1.attn_norm.weight"][1]
        assert torch.equal(stored, held["decoder.layers.1.attention_norms.before.weight"] + 1)
        folder = plait.save(plait.load(path), tmp_path / name, dialect="hf")
        theirs = getattr(reference, ARCHITECTURES[name].model).from_pretrained(folder).eval()
        with torch.no_grad():
            assert (theirs(TOKENS).logits - checkpoint.model(TOKENS)).abs().max() < 1e-3


def test_scaled_rotations_are_factors(written: Written) -> None:
    factors = read_by_the_library(written("llama-3.1")[1])[1]["rope_freqs.weight"]
    assert factors[0] == "F32" and factors[1][0] == 1 < factors[1][1] < factors[1][2] < 8 == factors[1][-1]
    for name in ("llama-longrope", "phi3-longrope"):
        metadata, tensors = read_by_the_library(written(name)[1])
        arch = ARCHITECTURES[name].arch
        assert torch.equal(tensors["rope_factors_long.weight"][1], torch.tensor([2.0 + 0.5 * i for i in range(8)]))
        assert torch.equal(tensors["rope_factors_short.weight"][1], torch.tensor([1.0 + 0.1 * i for i in range(8)]))
        assert metadata[f"{arch}.rope.scaling.attn_factor"] == pytest.approx(np.sqrt(1 + np.log(4) / np.log(32)))


def test_blocks_are_kept_in_the_order_that_gguf_wants(written: Written, tmp_path: Path) -> None:
    rounded, _ = quantise(written("llama-biased")[0], "int4")
    path = plait.save(rounded, tmp_path / "q.gguf", dialect="gguf")
    source, back = GGUFSource(path), plait.load(path)
    assert {source.stored_type(f"blk.0.{n}.weight") for n in ("attn_q", "attn_k", "ffn_down")} == {"Q4_0"}
    assert source.stored_type("token_embd.weight") == "Q8_0" and source.stored_type("output_norm.weight") == "F32"
    assert source.metadata["general.file_type"] in (2, 7)
    held = rounded.model.state_dict()
    for name, values in back.model.state_dict().items():
        assert torch.equal(values, held[name]), name


def test_it_is_written_tensor_by_tensor(tmp_path: Path) -> None:
    """Each is asked for when those before it are in the file."""
    path, sizes = tmp_path / "x.gguf", list[int]()

    def data() -> memoryview:
        sizes.append(path.stat().st_size)
        return memoryview(np.full(1 << 16, len(sizes), dtype=np.float32)).cast("B")

    write_gguf(path, {"general.architecture": "llama"}, [Planned(f"t{i}", (256, 256), "F32", data) for i in range(4)])
    assert [b - a for a, b in zip(sizes[1:], sizes[2:], strict=False)] == [1 << 18, 1 << 18]
    source = GGUFSource(path)
    assert [float(source.read(f"t{i}")[7, 7]) for i in range(4)] == [1, 2, 3, 4]


def test_weights_may_stay_in_their_files(written: Written, tmp_path: Path) -> None:
    checkpoint, whole = written("llama-3.1")
    half = dataclasses.replace(checkpoint, model=copy.deepcopy(checkpoint.model).half())
    folder = plait.save(half, tmp_path / "hf", dialect="hf")
    with pytest.warns(PlaitNotice, match="stored in float16"):
        lazy, eager = plait.load(folder, lazy=True), plait.load(folder)
    paths = [plait.save(c, tmp_path / f"{i}.gguf", dialect="gguf") for i, c in enumerate((lazy, eager))]
    assert all(parameter.is_meta for parameter in lazy.model.parameters())
    sources = [GGUFSource(path) for path in paths]
    assert sources[0].stored_type("blk.0.attn_q.weight") == "F16" and sources[0].names == GGUFSource(whole).names
    for name in sources[0].names:
        assert bytes(sources[0].raw(name)) == bytes(sources[1].raw(name)), name


def test_what_fails_leaves_the_file_there_was(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, _ = written("llama")
    path = plait.save(checkpoint, tmp_path / "x.gguf", dialect="gguf")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"x.gguf: it exists; choose another name, or say overwrite=True"):
        plait.save(checkpoint, path, dialect="gguf")
    large = dataclasses.replace(checkpoint, model=random_model(checkpoint.architecture, dtype=torch.float32))
    with torch.no_grad():
        large.model.decoder.layers[2].ffn.down.weight[3, 3] = 1e6
    with pytest.raises(CheckpointError, match=r"blk.2.ffn_down.weight: it holds numbers beyond what F16 can"):
        plait.save(large, path, dialect="gguf", type="F16", overwrite=True)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["x.gguf"]
    plait.save(large, path, dialect="gguf", type="BF16", overwrite=True)
    assert path.read_bytes() != before


def test_names_that_lead_nowhere_are_refused(written: Written, tmp_path: Path) -> None:
    checkpoint, _ = written("llama")
    for name, match, options in (
        ("x", "a GGUF file's name ends in .gguf", {}),
        ("x.gguf", "type: 'Q4_K' is not one of F32, F16, BF16, Q8_0", {"type": "Q4_K"}),
        ("text.gguf", "it is no GGUF file, and is not overwritten", {"overwrite": True}),
        ("folder.gguf", "there is a folder of this name", {"overwrite": True}),
    ):
        (tmp_path / "text.gguf").write_text("notes")
        (tmp_path / "folder.gguf").mkdir(exist_ok=True)
        with pytest.raises(CheckpointError, match=match):
            plait.save(checkpoint, tmp_path / name, dialect="gguf", **options)
    with pytest.raises(CheckpointError, match="type: 'F16' is for dialect='gguf'"):
        plait.save(checkpoint, tmp_path / "y", dialect="hf", type="F16")
    assert not (tmp_path / "x.gguf").exists()


def test_half_a_character_is_told_by_its_key(tmp_path: Path) -> None:
    for value in ("a\ud800", ["b", "\udfff"]):
        with pytest.raises(CheckpointError, match="'tokenizer.chat_template': it holds .*, half of a surrogate pair"):
            write_gguf(tmp_path / "x.gguf", {"tokenizer.chat_template": value}, [])


def refusals() -> Iterator[tuple[str, dict[str, Any], str]]:
    dynamic = RopeScaling(kind="dynamic", factor=2.0, original_max_length=32)
    yield "llama", {"rope": Rope(scaling=dynamic), "max_length": None}, "rope.scaling: llama.cpp has no 'dynamic'"
    yield "llama", {"rope": Rope(dim=8)}, "GGUF's llama cannot say rope.dim 8; there it is the whole head"
    yield "llama", {"activation": "gelu"}, "GGUF's llama cannot say activation 'gelu'"
    yield "llama", {"rope": Rope(interleaved=True)}, "llama cannot say rope "
    yield "llama", {"layer_types": (LayerType(window=4), LayerType())}, "layer_types: this family has one window"
    yield "gpt2", {"attention_scale": 1.0}, "gpt2 cannot say attention_scale"
    yield "gemma", {"tied": False}, "gemma cannot say tied False; there it is always so"
    yield "gemma2", {"attention_softcap": None}, "gemma2 cannot say attention_softcap None"
    yield "gemma2", {"layer_types": ()}, "gemma2 cannot say layer_types"
    yield "gemma3", {"logit_softcap": None, "attention_scale": 1.0}, "GGUF's gemma3 cannot say attention_scale"
    yield "starcoder2", {"d_head": 12}, "starcoder2 cannot say d_head 12; there it is d_model / n_heads"


@pytest.mark.parametrize(("name", "changes", "message"), list(refusals()))
def test_what_llama_cpp_takes_for_granted_is_refused_by_its_field(
    name: str, changes: dict[str, Any], message: str, written: Written, tmp_path: Path
) -> None:
    checkpoint, _ = written(name)
    architecture = checkpoint.architecture.replace(**changes)
    with torch.device("meta"):
        model = plait.Transformer(architecture)
    changed = dataclasses.replace(checkpoint, architecture=architecture, model=model)
    with pytest.raises(FamilyError, match=f"GGUF cannot say this architecture. .*{message}"):
        plait.save(changed, tmp_path / "x.gguf", dialect="gguf")
    assert not list(tmp_path.iterdir())


def test_a_mixture_is_refused_by_its_experts(tmp_path: Path) -> None:
    mixture = plait.preset("mixtral-8x7b")
    with torch.device("meta"):
        model = plait.Transformer(mixture)
    checkpoint = plait.Checkpoint(architecture=mixture, model=model)
    with pytest.raises(FamilyError, match="cannot say experts: plait writes no mixture to GGUF"):
        plait.save(checkpoint, tmp_path / "x.gguf", dialect="gguf")


def test_what_has_no_place_is_told(written: Written, tmp_path: Path) -> None:
    checkpoint, _ = written("mistral")
    windowed = checkpoint.architecture.replace(layer_types=(LayerType(window=16),))
    rules = dataclasses.replace(checkpoint.rules, temperature=0.7, end=(2, 5, 6))
    changed = dataclasses.replace(
        checkpoint, architecture=windowed, model=random_model(windowed, dtype=torch.float32), rules=rules
    )
    with pytest.warns(PlaitNotice) as said:
        path = plait.save(changed, tmp_path / "x.gguf", dialect="gguf")
    texts = [str(notice.message) for notice in said]
    assert any("does not look at llama.attention.sliding_window, 16" in text for text in texts)
    assert any("no place for the decode rules temperature" in text for text in texts)
    back = plait.load(path)
    assert back.architecture.layer_types == (LayerType(window=16),) and back.rules.end == (2, 5, 6)


def test_tokens_that_take_spaces_along_are_named(written: Written, tmp_path: Path) -> None:
    checkpoint, _ = written("gpt2")
    folder = plait.save(checkpoint, tmp_path / "hf", dialect="hf")
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    state["added_tokens"][1]["rstrip"] = True
    path.write_text(json.dumps(state))
    with pytest.warns(PlaitNotice, match=r"no word for spaces or words that <\|im_start\|> take along"):
        plait.save(plait.load(folder), tmp_path / "x.gguf", dialect="gguf")


def test_a_bert_keeps_its_pooling(reference: ModuleType, tmp_path: Path) -> None:
    from tests.families.making import build

    build(reference, "bert").bert.save_pretrained(tmp_path / "hf")
    checkpoint = plait.load(tmp_path / "hf")
    assert checkpoint.architecture.head is None
    pooling = SentencePooling(pooling="cls", normalize=False, max_length=17)
    path = plait.save(dataclasses.replace(checkpoint, pooling=pooling), tmp_path / "x.gguf", dialect="gguf")
    metadata, tensors = read_by_the_library(path)
    assert (metadata["bert.attention.causal"], metadata["bert.pooling_type"]) == (False, 2)
    assert (
        metadata["tokenizer.ggml.token_type_count"] == checkpoint.architecture.token_types == 3
        and tensors["token_types.weight"][0] == "F32"
    )
    back = plait.load(path)
    assert back.pooling == pooling and back.tokenizer is None and back.architecture == checkpoint.architecture
    tokens = TOKENS[:, :30] % 60
    with torch.no_grad():
        assert torch.equal(back.model(tokens), checkpoint.model(tokens))
    build(reference, "bert").save_pretrained(tmp_path / "head")
    with pytest.raises(FamilyError, match="bert has no tensor for head.dense.weight, .* head_transform .* ask for"):
        plait.save(plait.load(tmp_path / "head"), tmp_path / "y.gguf", dialect="gguf")


def test_a_gguf_file_keeps_its_name_and_its_bytes(smollm2: Path, tmp_path: Path) -> None:
    path = plait.save(plait.load(smollm2, lazy=True), tmp_path / "x.gguf", dialect="gguf")
    source, again = GGUFSource(smollm2), GGUFSource(path)
    assert set(again.names) == set(source.names)
    assert all(bytes(again.raw(name)) == bytes(source.raw(name)) for name in source.names)
    added = {"llama.attention.key_length", "llama.attention.value_length", "tokenizer.ggml.add_eos_token"}
    assert {key for key in again.metadata if again.metadata[key] != source.metadata.get(key)} == added
    assert source.metadata.keys() - again.metadata.keys() == {"tokenizer.ggml.add_space_prefix"}  # false, as unsaid

"""Whole generations against the reference library's, with every decode rule that a checkpoint can bring along."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import plait

SMALL: dict[str, dict[str, Any]] = {
    "LlamaConfig": {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "max_position_embeddings": 64,
    },
    "BartConfig": {
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 28,
        "max_position_embeddings": 64,
    },
    "T5Config": {"d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3},
}
MODELS = {
    "LlamaConfig": "LlamaForCausalLM",
    "BartConfig": "BartForConditionalGeneration",
    "T5Config": "T5ForConditionalGeneration",
}
RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalty": {"repetition_penalty": 1.4},
    "ngrams": {"no_repeat_ngram_size": 2},
    "copies": {"encoder_no_repeat_ngram_size": 1},
    "bans": {"bad_words_ids": [[7], [5, 9], [11]], "min_new_tokens": 7},
    "forced": {"forced_bos_token_id": 9, "forced_eos_token_id": 2},
    "ends": {"eos_token_id": [2, *range(20, 40)]},
    "length": {"max_length": 11, "min_length": 11, "eos_token_id": [2, *range(10, 40)]},
}


@pytest.fixture(scope="module", params=SMALL)
def saved(request: pytest.FixtureRequest, reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(0)
    ids = {"vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    start = {} if request.param == "LlamaConfig" else {"decoder_start_token_id": 2 if "Bart" in request.param else 0}
    config = getattr(reference, request.param)(**ids, **start, **SMALL[request.param])
    model = getattr(reference, MODELS[request.param])(config).eval()
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.3
    return model, tmp_path_factory.mktemp("saved")


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_a_checkpoint_give_the_references_tokens(saved: Any, rule: str) -> None:
    model, folder = saved
    model.generation_config = type(model.generation_config)(
        **{**{k: v for k, v in model.generation_config.to_dict().items() if k.endswith("token_id")}, **RULES[rule]},
    )
    place: Path = folder / rule
    model.save_pretrained(place)
    checkpoint = plait.load(place)
    for prompt in ([5, 6, 7, 8], [9, 30, 4]):
        limit = {} if rule == "length" else {"max_new_tokens": 12}
        ids = torch.tensor([prompt])
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), **limit)[0].tolist()
        read = 1 if model.config.is_encoder_decoder else len(prompt)
        assert plait.generate(checkpoint, prompt, **limit).tokens == theirs[read:]

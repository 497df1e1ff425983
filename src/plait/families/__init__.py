"""Foreign dialects of checkpoints, as data: each reads and writes by one mechanism (``family.py``, ``weights.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.families.albert import ALBERT
from plait.families.arcee import ARCEE
from plait.families.bart import BART
from plait.families.bert import BERT
from plait.families.binding import Binding
from plait.families.biogpt import BIOGPT
from plait.families.bloom import BLOOM
from plait.families.cohere import COHERE
from plait.families.cohere2 import COHERE2
from plait.families.distilbert import DISTILBERT
from plait.families.dots1 import DOTS1
from plait.families.electra import ELECTRA
from plait.families.ernie import ERNIE
from plait.families.ernie4_5 import ERNIE4_5
from plait.families.ernie4_5_moe import ERNIE4_5_MOE
from plait.families.errors import FamilyError
from plait.families.eurobert import EUROBERT
from plait.families.exaone import EXAONE
from plait.families.exaone4 import EXAONE4
from plait.families.exaone_moe import EXAONE_MOE
from plait.families.falcon import FALCON
from plait.families.family import Family
from plait.families.fsmt import FSMT
from plait.families.gemma import GEMMA, GEMMA2
from plait.families.gemma3 import GEMMA3
from plait.families.glm import GLM, GLM4
from plait.families.glm4_moe import GLM4_MOE
from plait.families.gpt2 import GPT2
from plait.families.gpt_bigcode import GPT_BIGCODE
from plait.families.gpt_neo import GPT_NEO
from plait.families.gpt_neox import GPT_NEOX
from plait.families.gpt_oss import GPT_OSS
from plait.families.gptj import GPTJ
from plait.families.granite import GRANITE, HYPERCLOVAX
from plait.families.granite_moe import GRANITEMOE
from plait.families.gte import GTE
from plait.families.heads import class_names
from plait.families.helium import HELIUM
from plait.families.hunyuan import HUNYUAN_DENSE
from plait.families.hunyuan_moe import HUNYUAN_MOE
from plait.families.internlm import INTERNLM2, INTERNLM3
from plait.families.iquestcoder import IQUESTCODER
from plait.families.jina_embeddings_v3 import JINA_EMBEDDINGS_V3
from plait.families.knobs import missing_part
from plait.families.layout import Layout
from plait.families.llama import LLAMA, MISTRAL
from plait.families.m2m_100 import M2M_100
from plait.families.marian import MARIAN
from plait.families.mbart import BLENDERBOT, MBART, PEGASUS
from plait.families.megatron_bert import MEGATRON_BERT
from plait.families.minimax_m2 import MINIMAX_M2
from plait.families.ministral import CWM, MINISTRAL
from plait.families.mixtral import MIXTRAL
from plait.families.modernbert import MODERNBERT
from plait.families.modernbert_decoder import MODERNBERT_DECODER
from plait.families.mpnet import MPNET
from plait.families.mpt import MPT
from plait.families.mt5 import MT5, UMT5
from plait.families.nemotron import JAIS2, NEMOTRON
from plait.families.nomic_bert import NOMIC_BERT
from plait.families.olmo import OLMO, OLMO2, OLMO3
from plait.families.olmoe import OLMOE
from plait.families.openai_gpt import OPENAI_GPT
from plait.families.opt import OPT
from plait.families.persimmon import PERSIMMON
from plait.families.phi import PHI
from plait.families.phi3 import PHI3
from plait.families.plbart import MVP, PLBART
from plait.families.qwen import QWEN2, QWEN3
from plait.families.qwen2_moe import QWEN2_MOE
from plait.families.qwen3_moe import QWEN3_MOE
from plait.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from plait.families.roberta_prelayernorm import ROBERTA_PRELAYERNORM, XLM_ROBERTA_XL
from plait.families.seed_oss import SEED_OSS
from plait.families.smollm3 import SMOLLM3
from plait.families.solar_open import SOLAR_OPEN
from plait.families.stablelm import STABLELM
from plait.families.starcoder2 import STARCODER2
from plait.families.t5 import T5
from plait.families.t5_encoders import MT5_ENCODER, T5_ENCODER, UMT5_ENCODER
from plait.families.t5gemma import T5GEMMA
from plait.families.vaultgemma import VAULTGEMMA
from plait.families.wrapped import Wrapped, wrapped
from plait.families.wrappers import WRAPPERS
from plait.families.xglm import XGLM
from plait.words import nearest

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    VAULTGEMMA,
    GPT2,
    GPT_NEOX,
    OPENAI_GPT,
    GPT_NEO,
    GPT_BIGCODE,
    OPT,
    BIOGPT,
    XGLM,
    BLOOM,
    MPT,
    FALCON,
    GPTJ,
    PHI,
    STABLELM,
    PERSIMMON,
    NEMOTRON,
    JAIS2,
    STARCODER2,
    PHI3,
    MINISTRAL,
    CWM,
    OLMO,
    OLMO2,
    OLMO3,
    EXAONE,
    EXAONE4,
    COHERE,
    COHERE2,
    GRANITE,
    HYPERCLOVAX,
    SMOLLM3,
    GLM,
    GLM4,
    ERNIE4_5,
    HUNYUAN_DENSE,
    SEED_OSS,
    ARCEE,
    HELIUM,
    INTERNLM2,
    INTERNLM3,
    IQUESTCODER,
    BERT,
    ERNIE,
    MEGATRON_BERT,
    ROBERTA,
    XLM_ROBERTA,
    CAMEMBERT,
    ROBERTA_PRELAYERNORM,
    XLM_ROBERTA_XL,
    DISTILBERT,
    ELECTRA,
    ALBERT,
    MPNET,
    MODERNBERT,
    MODERNBERT_DECODER,
    NOMIC_BERT,
    GTE,
    JINA_EMBEDDINGS_V3,
    EUROBERT,
    T5,
    MT5,
    UMT5,
    T5_ENCODER,
    MT5_ENCODER,
    UMT5_ENCODER,
    T5GEMMA,
    BART,
    PLBART,
    MVP,
    MARIAN,
    MBART,
    BLENDERBOT,
    PEGASUS,
    M2M_100,
    FSMT,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    OLMOE,
    GRANITEMOE,
    GPT_OSS,
    GLM4_MOE,
    DOTS1,
    SOLAR_OPEN,
    EXAONE_MOE,
    ERNIE4_5_MOE,
    HUNYUAN_MOE,
    MINIMAX_M2,
)


LIST = "which docs/families.md lists"


def family_for(config: Mapping[str, Any]) -> Family | Wrapped:
    """The family of a config, by its ``model_type``; ``FamilyError`` says what is missing, or the nearest name."""
    kind, named = config.get("model_type"), {*class_names(config)}
    if not isinstance(kind, str | None):
        raise FamilyError(f"model_type: {kind!r} is no name of a family.")
    if fitting := [family for family in FAMILIES if kind in family.model_types]:
        return next((family for family in fitting if named & {*family.classes}), fitting[0])
    if kind in WRAPPERS:
        return wrapped(kind, WRAPPERS[kind], config, family_for)
    known = dict.fromkeys(name for family in FAMILIES for name in family.model_types)
    if kind is None:
        raise FamilyError(f"model_type: the config does not say it; plait reads {len(known)}, {LIST}.")
    if part := missing_part(config):
        raise FamilyError(f"model_type: {kind!r} asks for {part}, which plait does not have.")
    if config.get("auto_map"):
        raise FamilyError(f"model_type: {kind!r} brings code of its own (auto_map), which plait never runs.")
    near = nearest(kind, known)
    hint = f"; did you mean {near!r}?" if near else "."
    raise FamilyError(f"model_type: plait has no family {kind!r}; it reads {len(known)}, {LIST}{hint}")


__all__ = ["FAMILIES", "WRAPPERS", "Binding", "Family", "FamilyError", "Layout", "Wrapped", "family_for"]

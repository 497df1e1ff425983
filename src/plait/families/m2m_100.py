"""M2M-100 and NLLB: Pegasus with sinusoids that count from the pad id, and nothing added to the logits."""

from plait.architecture import Sinusoid
from plait.families.mbart import PEGASUS
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH, plus
from plait.families.settings import key

M2M_100 = PEGASUS.relative(
    "m2m_100",
    classes=("M2M100ForConditionalGeneration", "M2M100Model"),
    settings={
        "vocab_size": key("vocab_size", 128112),
        "position_offset": key("pad_token_id", 1, plus(1)),
        "sinusoid": Sinusoid(layout="halves", denominator="half_minus_one"),
        "activation": key("activation_function", "relu", ACTIVATION),
        "embedding_scale": key("scale_embedding", True, ROOT_OF_WIDTH),
        "logit_bias": False,
    },
    leftovers=(r"(encoder|decoder)\.embed_positions\.weights", r"shared\.weight"),  # the class looks at no stored table
    sinusoids=(),
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
    tokenizer="M2M100Tokenizer",
)

from plait.words import nearest


def test_the_name_that_was_meant():
    names = ["gpt_neox", "gpt2", "llama", "LM"]
    assert nearest("lama", names) == "llama"
    assert nearest("GPT-NeoX", names) == "gpt_neox"
    assert nearest("lm", names) == "LM", "as it is written, not as it was compared"
    assert nearest("whisper", names) is None
    assert nearest(None, []) is None
    assert nearest("lama", names, cutoff=0.95) is None

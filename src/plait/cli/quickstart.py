"""``plait quickstart``: a Transformer that translates English to Chinese, trained in a minute or two, from nothing."""

from __future__ import annotations

import time
from pathlib import Path

from plait.cli.printing import notice, working


def quickstart(*, out: Path = Path("runs/quickstart")) -> int:
    """Train a small encoder-decoder to translate English to Chinese, and show what it learnt.

    The sentences come from a grammar that plait has for this. Those it is tested on have combinations of subject, verb
    and object that it never saw. Two processor cores need less than two minutes.

    Parameters
    ----------
    out
        A folder for the corpus, the run and the model; a run that is there is replaced only if you delete it.
    """
    began = time.monotonic()
    with working("starting"):
        from plait.cli.train import follow
        from plait.generation.translate import translate_lines
        from plait.training.folder import Folder
        from plait.training.quickstart.baselines import Nearest, exact, word_for_word
        from plait.training.quickstart.picture import in_terminal, page, pattern_of
        from plait.training.quickstart.preparing import DRAWN, SHOWN, prepare
        from plait.training.resolve import resolve
        from plait.training.running import ready

        out = out.expanduser()
        folder = Folder(out)
        if folder.has_run():
            notice(f"{out}: a run is there already; delete it, or choose another --out.")
            return 1
    with folder.held():
        with working("writing sentences"):
            prepared = prepare(out)
            resolved = resolve(prepared.recipe)
        notice(f"{out / 'corpus'}: {len(prepared.train):,} pairs to learn from, {len(prepared.test)} held out.")
        stop = follow(ready(resolved, folder))
    if stop in ("SIGINT", "SIGTERM"):
        return 130 if stop == "SIGINT" else 143
    checkpoint = resolved.checkpoint
    with working("translating"):
        english = [pair.en for pair in prepared.test]
        said = [one.text for one in translate_lines(checkpoint, english, beams=1)]
        scores = {
            "this model": exact(said, prepared.test),
            "a dictionary, word for word": exact(list(map(word_for_word, english)), prepared.test),
            "the nearest training sentence": exact(list(map(Nearest(prepared.train), english)), prepared.test),
        }
        shown = list(translate_lines(checkpoint, SHOWN, beams=1))
        drawn = pattern_of(checkpoint, DRAWN)
        (out / "attention.html").write_text(page([pattern_of(checkpoint, one) for one in SHOWN]), encoding="utf-8")
    print(f"\n{len(said)} sentences of combinations it never saw, translated to the character:")
    for name, share in scores.items():
        print(f"  {share:6.1%}  {name}")
    print()
    for source, one in zip(SHOWN, shown, strict=True):
        print(f"  {source}  ->  {one.text}")
    print(f"\nWhere it looked while it wrote (all layers and heads; {out / 'attention.html'} has more):\n")
    print(in_terminal(drawn))
    print(f"\nThe model is {folder.model}; how it came about is in {folder.report}. Translate more with:")
    print(f'  echo "Did you see my cat in the garden?" | plait translate {folder.model}')
    notice(f"{time.monotonic() - began:.0f} seconds in all.")
    return 0

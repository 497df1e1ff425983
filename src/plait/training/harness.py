"""Harness: lm-eval's tasks, asked of any runner.

lm-eval (Gao et al. 2021) wants three answers of a model: how likely a continuation is and whether greedy decoding would
give it, how likely a whole text is, and what is written until a stop. How a pair is cut into tokens is lm-eval's rule,
so that scores compare with published ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checkpoint.notice import PlaitNotice
from plait.generation import ModelRunner, Runner, generate
from plait.generation.settings import start_id
from plait.training.continuations import Row, likelihoods
from plait.words import nearest

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

UNBOUNDED = 2048  # tokens of a row of a model that has no longest one: lm-eval's own
WRITTEN = 256  # tokens that are written where a task does not say how many
DRAWS = 100  # resamples of a test set, for a standard error without a formula


class HarnessError(ValueError):
    """A task that cannot be asked, or a model that cannot answer; the message says which."""


def run_harness(
    checkpoint: Checkpoint,
    tasks: Sequence[str],
    *,
    runner: Runner | None = None,
    folder: str | Path | None = None,
    shots: int | None = None,
    limit: int | None = None,
    batch_tokens: int = 2048,
) -> dict[str, dict[str, float]]:
    """The metrics of lm-eval's tasks, by task: ``{"my_task": {"acc": 0.5, "acc_stderr": 0.1}}``.

    Args:
        checkpoint: a decoder, or an encoder-decoder for tasks of continuations, with its tokenizer.
        tasks: names that lm-eval knows.
        runner: who computes; ``None``: the plain model.
        folder: where further tasks are described, in lm-eval's YAML.
        shots: examples before each question; ``None``: what a task says.
        limit: the first so many questions of each task; ``None``: all.
        batch_tokens: of a batch, padding counted.

    Standard errors are lm-eval's own; those that have no formula are drawn ``DRAWS`` times.

    Raises ``HarnessError`` where lm-eval is not installed, does not know a task, or the model cannot be asked.
    """
    known = check_tasks(tasks, folder=folder, shots=shots, limit=limit, batch_tokens=batch_tokens)
    answering = adapter(checkpoint, runner, batch_tokens=batch_tokens)
    with _quietly():
        try:
            found = _lm_eval("evaluator").simple_evaluate(
                model=answering,
                tasks=list(tasks),
                task_manager=known,
                num_fewshot=shots,
                limit=limit,
                log_samples=False,
                bootstrap_iters=DRAWS,
            )
        except (ValueError, OSError):
            raise
        except Exception as error:  # of a task's description, or of its data
            raise HarnessError(
                f"harness: lm-eval cannot ask {', '.join(tasks)}: {type(error).__name__}: {error}"
            ) from error
    return {
        task: {_metric(key): value for key, value in metrics.items() if isinstance(value, float)}
        for task, metrics in found["results"].items()
    }


def check_tasks(
    tasks: Sequence[str],
    *,
    folder: str | Path | None = None,
    shots: int | None = None,
    limit: int | None = None,
    batch_tokens: int = 2048,
) -> Any:
    """lm-eval's list of the tasks that there are; ``HarnessError`` for what ``run_harness`` would not take."""
    for name, number, least in (("shots", shots, 0), ("limit", limit, 1), ("batch_tokens", batch_tokens, 1)):
        if number is not None and number < least:
            raise HarnessError(f"{name}: {number} makes no sense; give a whole number from {least}.")
    manager = _lm_eval("tasks")
    if folder is not None and not Path(folder).is_dir():
        raise HarnessError(f"harness: there is no folder {folder} with tasks.")
    with _quietly():
        known = manager.TaskManager(include_path=None if folder is None else str(folder))
    for name in tasks:
        if name not in known.all_tasks:
            near = nearest(name, known.all_tasks)
            hint = f"did you mean {near!r}?" if near else "lm-eval ls tasks lists those there are."
            raise HarnessError(f"harness: lm-eval knows no task {name!r}; {hint}")
    return known


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What lm-eval and its libraries print and warn of is no part of an answer; draws are made in this process."""
    name, before = "DISABLE_MULTIPROC", os.environ.get("DISABLE_MULTIPROC")
    os.environ[name] = "1"
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", PlaitNotice)  # what plait itself has to say
            yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _metric(key: str) -> str:
    """``acc`` of ``acc,none``; a filter that is one stays."""
    return key.removesuffix(",none")


def adapter(checkpoint: Checkpoint, runner: Runner | None = None, *, batch_tokens: int = 2048) -> Any:
    """The checkpoint as lm-eval's ``LM``; ``HarnessError`` where it writes no text, or lm-eval is not there."""
    a, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    if a.head != "language" or tokenizer is None:
        raise HarnessError(
            "harness: lm-eval asks models that write text; give one with a language head and a tokenizer."
        )
    ends = [id for id in (tokenizer.eos, *checkpoint.rules.end) if id is not None]
    if not ends:
        raise HarnessError(
            "harness: neither the tokenizer nor the rules say which token ends a text; lm-eval wants one."
        )
    bos = tokenizer.bos if tokenizer.bos is not None else ends[0]
    used: Runner = ModelRunner(checkpoint.model) if runner is None else runner
    longest = a.max_length or UNBOUNDED
    start = [start_id(checkpoint.rules, a.vocab_size)] if a.kind == "encoder-decoder" else []
    model, rolling = _lm_eval("api.model"), _lm_eval("utils")

    class Answering(model.TemplateLM):
        """What lm-eval asks, answered by a runner."""

        backend = "seq2seq" if start else "causal"
        eot_token_id = ends[0]
        prefix_token_id = bos
        tokenizer_name = "plait"

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
            """The ids of a text; one that spells its BOS itself gets no other."""
            if add_special_tokens is None:
                add_special_tokens = not string.startswith(tokenizer.token(bos))
            return tokenizer.encode(string, specials=add_special_tokens)

        def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
            rows = [(list(before), list(after)) for _, before, after in requests]
            return likelihoods(used, rows, start, longest, batch_tokens)

        def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
            """The log-probability of each whole text, every token given as much as fits before it."""
            if start:
                raise HarnessError("harness: a whole text is scored by a decoder alone; this is an encoder-decoder.")
            sums: list[float] = []
            for (text,) in (request.args for request in requests):
                windows = rolling.get_rolling_token_windows(
                    token_list=self.tok_encode(text), prefix_token=bos, max_seq_len=longest, context_len=1
                )
                rows: list[Row] = [rolling.make_disjoint_window(window) for window in windows]
                sums.append(sum(value for value, _ in likelihoods(used, rows, start, longest, batch_tokens)))
            return sums

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            """What is written after each context, up to a stop of its task."""
            return [self._written(*request.args) for request in requests]

        def _written(self, context: str, wishes: dict[str, Any]) -> str:
            until = wishes.get("until") or []
            most = next((wishes[name] for name in ("max_gen_toks", "max_new_tokens") if name in wishes), WRITTEN)
            tokens = self.tok_encode(context)
            tokens = tokens[-(longest if start else max(longest - most, 1)) :]
            drawn = wishes.get("do_sample", False)
            found: Any = generate(
                checkpoint,
                tokens,
                max_new_tokens=min(most, longest - (1 if start else len(tokens))),
                temperature=float(wishes.get("temperature", 1.0)) if drawn else 0.0,
                beams=1,
                stop=[until] if isinstance(until, str) else [stop for stop in until if stop],
                runner=used,
                seed=0,
            )
            return found.text

    return Answering()


def _lm_eval(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its imports
            return importlib.import_module(f"lm_eval.{name}")
    except ImportError as error:
        raise HarnessError(f"harness: lm-eval cannot be imported ({error}); install plait[harness].") from None

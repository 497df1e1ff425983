"""The program of the rendering process: a JSON request a line in, a JSON answer a line out.

It is run by path, apart from the rest of the package, and knows jinja2 alone. The environment is the one chat templates
are written for (``transformers.utils.chat_template_utils``): sandboxed, immutable, trimmed blocks, loop controls.
"""

import json
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

sys.path += sys.argv[1:]

import jinja2  # noqa: E402
from jinja2 import nodes  # noqa: E402
from jinja2.exceptions import SecurityError, TemplateError  # noqa: E402
from jinja2.ext import Extension, loopcontrols  # noqa: E402
from jinja2.parser import Parser  # noqa: E402
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402
from jinja2.utils import Namespace  # noqa: E402


class Generation(Extension):
    """``{% generation %}`` marks what an assistant said, for training masks; rendered, it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The content of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class PlainNamespace(Namespace):
    """``namespace()`` without the underscored names that lead into the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N805 - so that namespace(self=...) works
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_underscored(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscored(name)
        super().__setitem__(name, value)


class PlainDict:
    """``dict(...)`` without the type behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """A dict."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """A dict with these keys."""
        return dict.fromkeys(*args)


def _refuse_underscored(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the underscored name {name!r}")


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": PlainDict(),
        "namespace": PlainNamespace,
    }
    return environment


ENVIRONMENT = _environment()


@lru_cache(maxsize=16)
def _compiled(source: str) -> jinja2.Template:
    return ENVIRONMENT.from_string(source)


def _render(request: dict[str, Any]) -> str:
    pieces: list[str] = []
    left = request["output"]
    for piece in _compiled(request["template"]).generate(request["variables"]):
        left -= len(piece)
        if left < 0:
            raise TemplateError(f"it writes more than {request['output']} characters")
        pieces.append(piece)
    return "".join(pieces)


def _answer(request: dict[str, Any], limit_memory: Callable[[int], None]) -> dict[str, str]:
    limit_memory(request["memory"])
    try:
        return {"text": _render(request)}
    except MemoryError:
        return {"error": f"it needs more than {request['memory'] // 2**20} MiB of memory."}
    except RecursionError:
        return {"error": "it nests or calls itself too deeply."}
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        line = getattr(error, "lineno", None)
        where = f" (line {line} of the template)" if line else ""
        return {"error": f"{lines[0][:300].rstrip('.')}{where}."}


def _memory_limiter() -> Callable[[int], None]:
    try:
        import resource
    except ImportError:  # not a Unix: time and output are still limited
        return lambda limit: None

    def limit_memory(limit: int) -> None:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        except (OSError, ValueError):  # a system that does not limit address space
            pass

    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    return limit_memory


def main() -> None:
    """Answer requests until there are none."""
    limit_memory = _memory_limiter()
    print("{}", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if hasattr(signal, "setitimer"):  # kill this process, even where its parent is gone
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])
            signal.setitimer(signal.ITIMER_REAL, request["wall"] + 1)
        print(json.dumps(_answer(request, limit_memory)), flush=True)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()

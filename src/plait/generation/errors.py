"""The one error of generation: a request that cannot be carried out."""


class GenerationError(ValueError):
    """A prompt, limit or setting that makes no sense; the message says which, its value and what would be right."""

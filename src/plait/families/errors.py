"""What a family of checkpoints does not say, or plait does not have, in one sentence."""


class FamilyError(ValueError):
    """A foreign config or file that plait cannot read or write; it says what, where, and what would be right."""

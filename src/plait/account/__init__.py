"""The account: parameters, FLOPs and bytes, as pure functions of an Architecture.

``tensors`` sorts the parameters, ``flops`` counts the work, ``storage`` the bytes, ``account`` gathers them. Nothing
here needs torch; the tests hold all of it against the live model.
"""

from plait.account.account import Account, Row, account
from plait.account.flops import Flops

__all__ = ["Account", "Flops", "Row", "account"]

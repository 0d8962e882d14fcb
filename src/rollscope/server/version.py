"""Which Rollscope this is."""

from ..capture.setup import installed

VERSION = installed("rollscope") or "0"  # from a bare checkout

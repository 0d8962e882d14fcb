"""Which Rollscope this is."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("rollscope")
except PackageNotFoundError:  # run from a bare checkout
    VERSION = "0"

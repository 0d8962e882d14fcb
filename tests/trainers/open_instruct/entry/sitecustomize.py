"""Loaded by every Python of this test, driver and Ray workers alike, because it lies on their path.

Modules that open-instruct imports and never calls here are stand-ins.
"""

import os

if os.environ.get("OPEN_INSTRUCT_WITHOUT_GPU"):
    import standins

    from rollscope.adapters._imports import when_imported

    def _without_pinned_memory(torch: object) -> None:
        torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[attr-defined]

    standins.install()
    when_imported("torch", _without_pinned_memory)

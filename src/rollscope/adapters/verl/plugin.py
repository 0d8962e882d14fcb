"""What verl loads by itself: the entry point in the group `verl.plugins`.

verl imports it at the end of `import verl`, in every process. It only waits; see `hook`.
Before 0.9 it has no entry points. `VERL_USE_EXTERNAL_MODULES` leads here, too, and `hook` refuses.
"""

import os

from ...capture.cluster import share
from ...capture.settings import setting
from .hook import wait

if os.environ.get("ROLLSCOPE") is None or setting("ROLLSCOPE") is not False:
    wait()
share()

"""What the HTTP API answers with, as types.

The OpenAPI description, the TypeScript types of the viewer and the encoder are all derived
from these. A number that JSON cannot write (NaN, infinities) is the text "NaN", "Infinity"
or "-Infinity"; null always means "not known".
"""

# Nobody but the server's own modules imports from here, and they take all of it.
from .compared import *  # noqa: F403
from .overview import *  # noqa: F403
from .rollout import *  # noqa: F403
from .rows import *  # noqa: F403
from .service import *  # noqa: F403

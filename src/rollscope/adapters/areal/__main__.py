"""`python -m rollscope.adapters.areal examples/math/gsm8k_rl.py --config ...`"""

import sys

from rollscope.adapters._launch import main
from rollscope.adapters.areal.launching import install

main(
    sys.argv[1:],
    install,
    "python -m rollscope.adapters.areal examples/math/gsm8k_rl.py --config ...",
)

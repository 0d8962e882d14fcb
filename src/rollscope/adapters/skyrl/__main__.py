"""`python -m rollscope.adapters.skyrl -m skyrl.train.entrypoints.main_base ...`"""

import sys

from rollscope.adapters._launch import main
from rollscope.adapters.skyrl.launching import install

main(
    sys.argv[1:],
    install,
    "python -m rollscope.adapters.skyrl -m skyrl.train.entrypoints.main_base ...",
)

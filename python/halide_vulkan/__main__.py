"""``python -m halide_vulkan`` is the command ``halide-vulkan``."""

import sys

# The command must work where the package cannot be imported in the usual way, so that it can say why.
from ._command import main

sys.exit(main())

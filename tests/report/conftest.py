"""The random programs of the fabric tests serve the recorder's and the debugger's, too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "fabric"))

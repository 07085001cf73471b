"""`python -m pageloom` is the command `pageloom`."""

import sys

from pageloom.cli import main

sys.exit(main())

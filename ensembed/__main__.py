"""`python -m ensembed` is `ensembed`."""

import sys

from ensembed.cli import main

sys.exit(main())

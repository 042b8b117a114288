"""`python -m mirror`, and the file to give to `spark-submit`.

It is the same program as the command `mirror`; everything is in `mirror.cli`.
"""

from __future__ import annotations

from mirror.cli.start import main

if __name__ == "__main__":
    main()

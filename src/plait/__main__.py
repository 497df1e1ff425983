"""``python -m plait`` is ``plait``."""

from plait.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

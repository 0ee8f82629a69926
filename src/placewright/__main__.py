"""``python -m placewright`` is the command line."""

from placewright.cli import main

main()

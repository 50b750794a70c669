"""`python -m homeostat`."""

from homeostat.cli import main

main(prog_name="homeostat")

"""`python -m headway`, which is how torchrun starts it."""

from headway.cli import main

main()

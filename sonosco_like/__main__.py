"""`python -m sonosco_like` is `sonosco`."""

from sonosco_like.cli import main

if __name__ == "__main__":
    main()

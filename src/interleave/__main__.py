"""`python -m interleave` is the `interleave` command."""

from interleave.cli.main import main

if __name__ == "__main__":
    main(prog_name="interleave")

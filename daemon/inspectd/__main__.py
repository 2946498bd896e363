"""`python -m inspectd` is `inspectd`."""

from inspectd.cli import entry

if __name__ == "__main__":
    entry()

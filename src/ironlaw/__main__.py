"""``python -m ironlaw``, and the installed command."""


def run() -> None:
    """Run the command; it may be stopped at any time, also while its modules are imported."""
    try:
        from ironlaw.cli import main

        main.run()
    except KeyboardInterrupt:
        import os
        import sys

        sys.stderr.write("ironlaw: stopped\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    run()

"""Write ``src/ironlaw/validate/data/predictions.json``: the validation of the runs that ship, with the constants that ship.

``python tools/predictions.py`` takes a minute on an idle machine. Run it after ``ironlaw validate fit``, and wherever a prediction moves.
"""

from __future__ import annotations

from ironlaw.validate import session
from ironlaw.validate.shipped import TABLE, write_shipped


def main() -> None:
    """Score the runs and write the file."""
    write_shipped(session.data(session.validate()))
    print(f"wrote {TABLE}")


if __name__ == "__main__":
    main()

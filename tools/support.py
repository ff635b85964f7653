"""Write what published runs support from the runs that ship: ``bands/support.csv`` and ``bands/ceilings.csv``.

``ironlaw validate fit`` writes them too; this writes them where runs were added and no constant is fitted again.
"""

from __future__ import annotations

from ironlaw.validate.predict import prepare
from ironlaw.validate.runs import read_runs
from ironlaw.validate.support import write_support

if __name__ == "__main__":
    write_support(prepare(read_runs()[0])[0])

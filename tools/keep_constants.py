"""Keep a set of constants under its version, so that an answer can be asked again with the constants of its time.

    python tools/keep_constants.py 2026.11                   keep the present set as src/ironlaw/catalog/versions/2026.11
    python tools/keep_constants.py 2026.11 --next 2026.12    and give the present records the next version: do this before a refit
    python tools/keep_constants.py 2026.11-rc1 --from REV    keep the set of a commit

A set is the records of the kinds in ``load.CONSTANTS``. A kept set never changes. It must be readable by today's schema:
where a constant has another name now, the set cannot be kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from ironlaw.catalog import load
from ironlaw.errors import IronlawError

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^version = ".*"$', re.MULTILINE)


def files(revision: str) -> dict[str, str]:
    """The text of every constants file, by kind and name: of the working tree, or of a commit."""
    if not revision:
        return {
            f"{kind}/{p.name}": p.read_text(encoding="utf-8")
            for kind in load.CONSTANTS
            for p in sorted((load.SHIPPED / kind).glob("*.toml"))
        }
    top = load.SHIPPED.relative_to(ROOT)
    listed = _git("ls-tree", "-r", "--name-only", revision, *(f"{top}/{kind}" for kind in load.CONSTANTS)).split()
    return {str(Path(name).relative_to(top)): _git("show", f"{revision}:{name}") for name in listed}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def keep(version: str, revision: str) -> str:
    """Write a set of constants under its version; a line that says why not, where it cannot be kept."""
    target = load.VERSIONS / version
    if target.exists():
        return f"{version} is kept already: a kept set never changes"
    texts = {name: _VERSION.sub(f'version = "{version}"', text) for name, text in files(revision).items()}
    if not texts:
        return f"{revision}: no constants"
    for name, text in texts.items():
        kind, _, file = name.partition("/")
        try:
            load.decode(kind, Path(file).stem, load.tomli.loads(text), name)
        except IronlawError as error:
            return f"{version} cannot be kept: {error}"
    for name, text in texts.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="version to keep the set under")
    parser.add_argument("--from", dest="revision", default="", metavar="REV", help="commit that has the set (default: the working tree)")
    parser.add_argument("--next", dest="following", default="", metavar="VERSION", help="version that the present records get")
    asked = parser.parse_args()
    if problem := keep(asked.version, asked.revision):
        print(problem, file=sys.stderr)
        return 1
    if asked.following:
        for path in sorted((load.SHIPPED / "calibration").glob("*.toml")):
            path.write_text(_VERSION.sub(f'version = "{asked.following}"', path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

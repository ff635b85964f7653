"""Findings as text, JSON, SARIF 2.1.0, and the annotations of GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ironlaw.checks.finding import KINDS, Finding

FORMS = ("text", "json", "sarif", "github")
SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def line_of(finding: Finding) -> str:
    """``FILE:LINE:COLUMN: severity: message [id]``, and the change to make.

    >>> line_of(Finding("never-used", "lora_r: adapters are off", "a.yaml", 3, 1, "adapter: lora"))
    'a.yaml:3:1: warning: lora_r: adapters are off; change: adapter: lora [never-used]'
    """
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    change = f"; change: {finding.change}" if finding.change else ""
    return f"{place}: {finding.severity}: {finding.message}{change} [{finding.id}]"


def data_of(finding: Finding) -> dict[str, Any]:
    """A finding as plain data."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line or None,
        "column": finding.column or None,
        "change": finding.change or None,
        "seconds": finding.seconds,
        "bytes": finding.bytes,
    }


def sarif(findings: Sequence[Finding], version: str) -> dict[str, Any]:
    """Findings as a log of SARIF 2.1.0, which code scanning of forges reads.

    >>> found = sarif([Finding("never-used", "lora_r", "a.yaml", 3, 1)], "1")["runs"][0]["results"][0]
    >>> found["ruleId"], found["level"], found["locations"][0]["physicalLocation"]["region"]
    ('never-used', 'warning', {'startLine': 3, 'startColumn': 1})
    """
    used = sorted({finding.id for finding in findings})
    rules = [
        {"id": name, "shortDescription": {"text": KINDS[name].says}, "defaultConfiguration": {"level": KINDS[name].severity}}
        for name in used
    ]
    results = []
    for finding in findings:
        region = {"region": {"startLine": finding.line, "startColumn": finding.column or 1}} if finding.line else {}
        place = {"artifactLocation": {"uri": finding.file.replace("\\", "/")}, **region}
        text = finding.message + (f"; change: {finding.change}" if finding.change else "")
        results.append(
            {"ruleId": finding.id, "ruleIndex": used.index(finding.id), "level": finding.severity, "message": {"text": text},
             "locations": [{"physicalLocation": place}]}
        )  # fmt: skip
    driver = {"name": "ironlaw", "version": version, "rules": rules}
    return {"$schema": SARIF, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def annotation(finding: Finding) -> str:
    """A finding as a command that a workflow of GitHub shows beside the line.

    >>> annotation(Finding("never-used", "lora_r: 100% unused", "a.yaml", 3, 1))
    '::warning file=a.yaml,line=3,col=1,title=never-used::lora_r: 100%25 unused'
    """
    level = {"note": "notice"}.get(finding.severity, finding.severity)
    where = [f"file={_escaped(finding.file, True)}"]
    where += [f"line={finding.line}", f"col={finding.column or 1}"] if finding.line else []
    text = finding.message + (f"; change: {finding.change}" if finding.change else "")
    return f"::{level} {','.join(where)},title={finding.id}::{_escaped(text)}"


def _escaped(text: str, of_property: bool = False) -> str:
    """A text as a workflow command takes it."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if of_property else text

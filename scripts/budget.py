#!/usr/bin/env python3
"""Checks the line budget of scripts/budget.toml. Prints a table; exits 1 if anything is over."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cc", ".cu", ".cuh"}
# Strings first, so that "//" inside one is not taken for a comment.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def code_lines(text):
    """Lines with something else than blanks and comments."""

    def strip(match):
        token = match[0]
        return token if token.startswith('"') else "\n" * token.count("\n")

    return sum(1 for line in TOKEN.sub(strip, text).splitlines() if line.strip())


def main():
    budget = tomllib.loads((ROOT / "scripts" / "budget.toml").read_text())
    used, tests, complaints = {}, 0, []
    for path in sorted(p for folder in ("src", "tests", "bench") for p in (ROOT / folder).rglob("*")):
        if path.suffix not in SOURCES:
            continue
        relative = path.relative_to(ROOT)
        text = path.read_text()
        if (total := text.count("\n")) > budget["files"]["lines"]:
            complaints.append(f"{relative}: {total} lines, at most {budget['files']['lines']} are allowed")
        is_test = relative.parts[0] != "src" or any(path.match(p) for p in budget["files"]["test_patterns"])
        if is_test:
            tests += code_lines(text)
        else:
            folder = relative.parts[1]
            used[folder] = used.get(folder, 0) + code_lines(text)

    limits = {name: ([name], lines) for name, lines in budget["folders"].items()}
    limits |= {name: (group["folders"], group["lines"]) for name, group in budget["groups"].items()}
    for name, (folders, limit) in limits.items():
        lines = sum(used.get(folder, 0) for folder in folders)
        print(f"{name:12} {lines:6} of {limit:6}")
        if lines > limit:
            complaints.append(f"{name}: {lines} lines, the budget is {limit} (scripts/budget.toml)")
    for folder in sorted(set(used) - {f for folders, _ in limits.values() for f in folders}):
        complaints.append(f"{folder}: no budget (scripts/budget.toml)")
    print(f"{'product':12} {sum(used.values()):6}\n{'tests':12} {tests:6}")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks the include graph of src against the table of docs/layers.md.

A folder may include only itself, base and what its row lists. Headers of CUDA, NCCL and MPI appear only in
the layers that wrap them, heavy parser headers only in .cc files. CMakeLists.txt may link no folder that its row
does not list. Prints "file:line: what" for each violation and exits 1.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# In order of level; "*" is every folder above it in this table.
ALLOWED = {
    "base": [],
    "config": [],
    "device": [],
    "pipeline": [],
    "comm": ["device"],
    "kernels": ["device"],
    "ir": ["device", "comm"],
    "ops": ["ir", "kernels", "device", "comm"],
    "data": ["config", "ir"],
    "io": ["config", "ir"],
    "passes": ["ir", "ops", "comm"],
    "model": ["ir", "ops", "config"],
    "plan": ["ir", "pipeline"],
    "exec": ["plan", "ir", "device", "comm"],
    "train": ["*"],
    "serve": ["*"],
    "cli": ["*"],
}

SYSTEM = re.compile(r"(cuda\w*|cublas\w*|cudnn\w*|nccl|nvshmem\w*|mpi)\.h$")
SYSTEM_FOLDERS = {"device", "comm", "kernels"}
HEAVY = re.compile(r"(nlohmann/|toml\+\+/|simdjson|CLI/|CLI11|pcre2)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SOURCES = {".h", ".cc", ".cu", ".cuh"}


def allowed_for(folder):
    row = ALLOWED[folder]
    names = list(ALLOWED)
    return {"base", folder} | set(names[: names.index(folder)] if row == ["*"] else row)


def check_include(path, folder, bracket, target):
    """The complaint about one include line, or None."""
    if bracket == '"':
        head = target.split("/")[0]
        if "/" not in target:
            # Files without a folder are generated (*.inc) or the tests' own.
            is_free = target.endswith(".inc") or path.name.endswith("_test.cc")
            return None if is_free else f'"{target}" is not rooted at src'
        if head not in ALLOWED:
            return f'"{target}" is in no folder of the table'
        if head not in allowed_for(folder):
            return f"{folder} may not include {head} ({target})"
    if bracket == "<" and SYSTEM.search(target) and folder not in SYSTEM_FOLDERS and path.suffix not in {".cu", ".cuh"}:
        return f"{target} belongs to {', '.join(sorted(SYSTEM_FOLDERS))} and .cu files"
    if HEAVY.match(target) and path.suffix == ".h":
        return f"{target} is slow to compile and belongs in a .cc file"
    return None


def check_sources():
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in SOURCES:
            continue
        relative = path.relative_to(ROOT)
        folder = relative.parts[1]
        if folder not in ALLOWED:
            yield f"{relative}:1: {folder} is not in the table of layers"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := INCLUDE.match(line):
                if complaint := check_include(path, folder, *match.groups()):
                    yield f"{relative}:{number}: {complaint}"


def check_cmake():
    for number, line in enumerate((ROOT / "CMakeLists.txt").read_text().splitlines(), 1):
        if match := re.match(r"wych_folder\((\w+)\s+(?:COLD\s+)?DEPENDS\s+([a-z ]+)", line):
            for target in sorted(set(match[2].split()) - allowed_for(match[1])):
                yield f"CMakeLists.txt:{number}: {match[1]} may not link {target}"


def main():
    violations = [*check_sources(), *check_cmake()]
    for violation in violations:
        print(violation)
    if violations:
        print(f"layers: {len(violations)} forbidden edges; the table is in docs/layers.md")
        return 1
    print("layers: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())

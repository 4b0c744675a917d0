#!/usr/bin/env bash
# The static checks, exactly as CI runs them: format, layers, budget, scripts, results, clang-tidy.
#   scripts/check.sh          everything
#   scripts/check.sh --fast   all but clang-tidy (seconds; for a pre-commit hook)
# Runs every check even after one failed; prints "N passed, N failed" last; exits 1 if any failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fast=false
case "${1:-}" in
  "") ;;
  --fast) fast=true ;;
  *)
    echo "usage: scripts/check.sh [--fast]" >&2
    exit 2
    ;;
esac

passed=0
failed=0

# check NAME COMMAND...: runs the command, shows its output only if it fails.
check() {
  local name=$1 start=$SECONDS output
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    echo "check: $name: ok ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    printf '%s\n' "$output"
    echo "check: $name: FAILED ($((SECONDS - start)) s)"
  fi
}

# project_files FOLDER... -- NAME_PATTERN...: the project's own files there, by name. It asks the disk, not git: a
# checkout owned by somebody else, or none at all, has the same files. Finding none is an error: a check of
# nothing must not pass.
project_files() {
  local folders=() names=() found
  while [[ $1 != -- ]]; do
    folders+=("$1")
    shift
  done
  shift
  for pattern in "$@"; do
    names+=(-o -name "$pattern")
  done
  found=$(find "${folders[@]}" \( -path ./build -o -path ./data -o -path ./runs -o -name .git \) -prune -o \
    -type f \( "${names[@]:1}" \) -print)
  [[ -n $found ]] || {
    echo "no file named $* in ${folders[*]}" >&2
    return 1
  }
  printf '%s\n' "$found"
}

check_format() {
  project_files . -- '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror
}

# Every command's status counts here: `set -e` is off inside a function whose result is tested.
check_scripts() {
  local script
  for script in x .ci/run $(project_files . -- '*.sh'); do
    bash -n "$script" || return 1
  done
  # Parse only: nothing is written beside the sources.
  project_files . -- '*.py' | xargs python3 -c 'import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path).read(), path)'
}

# Recorded results and the pages that show them; the tool is tested, so that it finds what it should.
check_results() {
  scripts/results_table.py --check && python3 scripts/results_table_test.py
}

# clang-tidy on product sources (their headers included), a file per core at a time. It needs how each file is
# compiled, which configuring tells, and the generated header; nothing else is built.
check_tidy() {
  mkdir -p build
  {
    cmake -S . -B build/check -G Ninja -DCMAKE_BUILD_TYPE=Release -DWYCH_TESTS=OFF &&
      cmake --build build/check --target wych_commit
  } >build/check.log 2>&1 || {
    cat build/check.log
    return 1
  }
  # cuda_*.cc belong to builds with CUDA alone, which this is not: their compiler's warnings are errors there.
  project_files src -- '*.cc' | grep -vE '(_test|/cuda_[^/]*)\.cc$' |
    xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/check 2>&1 |
    sed '/^[0-9]* warnings\? generated\.$/d; /^[0-9]* warnings\? treated as errors\?$/d'
}

check format check_format
check layers scripts/check_layers.py
check budget scripts/budget.py
check scripts check_scripts
check results check_results
if ! $fast; then
  check clang-tidy check_tidy
fi

echo "$passed passed, $failed failed"
((failed == 0))

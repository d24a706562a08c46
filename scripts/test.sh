#!/usr/bin/env bash
# Lint, types, layers and tests, with the seconds of each. Arguments go to pytest: scripts/test.sh -k resume
# Tests run in a process per core, four at most, whose SeaweedFS and ports are their own; -n 0 runs them in one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh"
cd "$root"
install_streamfeed dev

stage() {
  local name="$1" begin="$SECONDS"
  shift
  echo "== $name"
  "$@"
  echo "== $name: $((SECONDS - begin)) s"
}

bin="$root/.venv/bin"
stage "ruff check" "$bin/ruff" check
stage "ruff format" "$bin/ruff" format --check
stage "mypy" "$bin/mypy"
stage "lint-imports" "$bin/lint-imports"
unset PYTHONDONTWRITEBYTECODE # some hundred processes import the package
stage "pytest" "$bin/pytest" --numprocesses logical --maxprocesses 4 --dist worksteal "$@"

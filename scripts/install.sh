# Sourced by the scripts beside it: makes .venv when it is missing, and installs into it what is not there yet.
#
#   install_streamfeed          what users need
#   install_streamfeed dev      that, and what lint, types and tests need

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"

install_streamfeed() {
  local extra="${1:-}" package="$root" stamp="$root/.venv/.streamfeed-${1:-base}" wanted
  wanted="$(cat "$root/pyproject.toml" "$root/scripts/constraints.txt" | cksum)"
  # What dev needs includes what users need.
  if [[ -x "$python" ]] && { [[ "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]] ||
    [[ "$(cat "$root/.venv/.streamfeed-dev" 2>/dev/null)" == "$wanted" ]]; }; then
    return
  fi
  if [[ ! -x "$python" || ! -x "$root/.venv/bin/pip" ]]; then
    echo "== making $root/.venv"
    "${PYTHON:-python3}" -c 'import sys; sys.exit("streamfeed needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
    "${PYTHON:-python3}" -m venv "$root/.venv"
  fi
  echo "== installing streamfeed${extra:+ [$extra]} into $root/.venv"
  "$python" -m pip install --quiet --disable-pip-version-check -c "$root/scripts/constraints.txt" -e "$package${extra:+[$extra]}"
  echo "$wanted" >"$stamp"
}

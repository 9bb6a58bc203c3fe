#!/usr/bin/env bash
# Run the tests of scheduling against every mutant of its modules, or of some: `make mutants`.
#
#   scripts/mutation.sh [--jobs N] [MODULE ...]
#
# PYTHON names an interpreter that holds Cosmic Ray. Without it one is made, over the packages of .venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/_build/mutation/venv/bin/python}
if [[ -z ${PYTHON:-} && ! -x $root/_build/mutation/venv/bin/cosmic-ray ]]; then
  packages='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$root/.venv/bin/python" -m venv "$root/_build/mutation/venv"
  "$root/.venv/bin/python" -c "$packages" >"$("$python" -c "$packages")/tested.pth"
  "$python" -m pip install -q cosmic-ray==8.7.0
fi
export PYTHONPATH="$root/src:$root/kernels" PYTHONHASHSEED=0 OMP_NUM_THREADS=1
exec "$python" "$root/scripts/mutation.py" "$@"

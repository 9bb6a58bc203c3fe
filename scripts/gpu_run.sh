#!/usr/bin/env bash
# Measure on a GPU host borrowed for minutes and has no network: this repository (with or without its
# history) and, where packages are missing, a folder of wheels.
#
#   scripts/gpu_run.sh OUT [--wheels FOLDER] [--commit SHA] [--expect NAME] [--time-budget SECONDS] [...]
#
# PYTHON names the interpreter that holds torch (default python3); other options go to `interleave gpu-run`.
# Bring back OUT/gpu-run.tar.gz and file it with `interleave ingest gpu-run.tar.gz`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
if [[ $# -lt 1 || $1 == -* ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
out=$1
shift
wheels='' rest=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --wheels) wheels=${2:?--wheels needs a folder}; shift 2 ;;
    --commit) export INTERLEAVE_COMMIT=${2:?--commit needs a hash}; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONPATH="$root/src:$root/kernels${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if [[ -n $wheels ]]; then
  size=$(du -sm "$wheels" | cut -f1)
  if ((size > 60)); then
    echo "gpu_run.sh: $wheels takes $size MiB, more than 60" >&2
    exit 2
  fi
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
  # Before the host's own packages: bring only what it lacks, and its torch and triton stay what they are.
  export PYTHONPATH="$PYTHONPATH:$site"
fi
"$python" -m interleave gpu-run --out "$out" "${rest[@]}"

#!/usr/bin/env bash
# Every benchmark of wych on this machine's GPU and its peer on PyTorch, once; a record of each in bench/results.
#   bench/run_gpu.sh [--quick | --full] [--wych BINARY] [--out FOLDER] [--commit HASH] [--only NAME]...
#
#   --quick    the ends of the ladder, OLMoE's whole step with an optimizer in float32 (the default)
#   --full     every case of every script, both states of the peer's optimizer
#   --wych     default build/cuda/wych, made by `./x build --cuda`
#   --out      default bench/results; files are <date>-<kind>-<gpu>.json, and none is overwritten
#   --commit   of the code that is measured, where git does not know it
#   --only     check, grouped, moe-step, train-step; may be repeated. Default: all of them, in that order
#
# The peers need PyTorch 2.11 and transformers 5.17 in the `python3` of PATH. Run nothing else on the GPU. Every
# benchmark runs even after one failed; the last line is "N done, N failed", and the exit status 1 if any failed,
# 2 if something is missing. How it is measured, and what to do with the files: docs/performance.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

refuse() {
  echo "run_gpu.sh: $*" >&2
  exit 2
}

size=quick wych=build/cuda/wych out=bench/results commit='' only=()
while (($#)); do
  case $1 in
    --quick | --full) size=${1#--} ;;
    --wych | --out | --commit | --only)
      (($# > 1)) || refuse "$1 needs a value"
      case $1 in
        --wych) wych=$2 ;;
        --out) out=$2 ;;
        --commit) commit=$2 ;;
        --only) only+=("$2") ;;
      esac
      shift
      ;;
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '/^set /d'
      exit 0
      ;;
    *) refuse "unknown argument $1; see --help" ;;
  esac
  shift
done
((${#only[@]})) || only=(check grouped moe-step train-step)
for name in "${only[@]}"; do
  [[ $name =~ ^(check|grouped|moe-step|train-step)$ ]] ||
    refuse "--only $name: expected check, grouped, moe-step or train-step"
done

[[ -x $wych ]] || refuse "$wych is not there; build it with ./x build --cuda, or name another with --wych"
[[ -n $commit ]] || commit=$(git rev-parse --short HEAD 2>/dev/null) ||
  refuse "git does not know the commit of this folder; name it with --commit"
if [[ -n $(git status --porcelain --untracked-files=no 2>/dev/null) ]]; then
  echo "run_gpu.sh: the folder has changes that $commit does not have; commit them before a record counts" >&2
fi
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || gpu=''
[[ -n $gpu ]] || refuse "nvidia-smi names no GPU; these benchmarks need one"
python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null ||
  refuse "python3 has no PyTorch that sees the GPU, or no transformers; activate an environment that has both"
mkdir -p "$out"
gpu=$(tr '[:upper:] ' '[:lower:]-' <<<"${gpu#NVIDIA }")

moe_step=() train_step=()
if [[ $size == quick ]]; then
  moe_step=(--cases olmoe ladder-8 ladder-128 --turns 1)
  train_step=(--states float32 --steps 5 --turns 1)
fi

finished=0
failed=0

# record KIND SCRIPT ARGUMENTS...: runs a script of bench/peers that writes its record.
record() {
  local kind=$1 script=$2 file
  shift 2
  file=$out/$(date +%F)-$kind-$gpu.json
  printf '\n==== %s\n' "$kind"
  if [[ -e $file ]]; then
    echo "$file is there already; move it away first"
    failed=$((failed + 1))
  elif python3 "bench/peers/$script" --wych "$wych" --commit "$commit" --json "$file" "$@"; then
    echo "written: $file"
    finished=$((finished + 1))
  else
    echo "FAILED: $kind"
    failed=$((failed + 1))
  fi
}

for name in "${only[@]}"; do
  case $name in
    check)
      printf '\n==== check\n'
      if python3 bench/peers/moe_step.py --check --wych "$wych"; then
        finished=$((finished + 1))
      else
        echo "FAILED: the peer's model computes something else; its figures mean nothing"
        failed=$((failed + 1))
      fi
      ;;
    grouped) record grouped grouped_mm.py ;;
    moe-step) record moe-step moe_step.py "${moe_step[@]}" ;;
    train-step) record train-step train_step.py "${train_step[@]}" ;;
  esac
done

printf '\n%d done, %d failed\n' "$finished" "$failed"
((failed == 0))

#!/usr/bin/env bash
# Install, prepare the sample text, pretrain a small model on this computer and ask it.
# Usage: bash scripts/quickstart.sh [en|zh] [--set KEY=VALUE …]
# RUNS names the folder to write to (default: runs).
set -euo pipefail
language=${1:-en}
shift $(($# > 0))
case $language in
    en) recipe=quickstart text="The city is the [MASK] of the country and [MASK] of its people." ;;
    zh) recipe=quickstart_ernie_zh text="他出生[MASK]一九八零[MASK]。" ;;
    *) echo "usage: bash scripts/quickstart.sh [en|zh] [--set KEY=VALUE …]" >&2; exit 2 ;;
esac
source "$(dirname "$0")/environment.sh"

config=configs/pretrain/$recipe.yaml
output=${RUNS:-runs}/$recipe
python prepare_data.py --config "$config" "$@"
python run_pretrain.py --config "$config" --output "$output" --resume "$@"
python predict.py fill-mask --checkpoint "$(ls -d "$output"/checkpoints/step_* | tail -n 1)" \
    --text "$text"
echo "figures: $output/result.json, curves: $output/curves.png"

#!/usr/bin/env bash
# Install, prepare the sample text, pretrain a small model on this computer and ask it.
# Usage: bash scripts/quickstart.sh [en|zh]
set -euo pipefail
case ${1:-en} in
    en) recipe=quickstart text="The capital of the [MASK] is the largest [MASK] in the country." ;;
    zh) recipe=quickstart_ernie_zh text="他[MASK]一九[MASK]八年出生。" ;;
    *) echo "usage: bash scripts/quickstart.sh [en|zh]" >&2; exit 2 ;;
esac
source "$(dirname "$0")/environment.sh"

config=configs/pretrain/$recipe.yaml
output=runs/$recipe
python prepare_data.py --config "$config"
python run_pretrain.py --config "$config" --output "$output" --resume
python predict.py fill-mask --checkpoint "$(ls -d "$output"/checkpoints/step_* | tail -n 1)" \
    --text "$text"
echo "figures: $output/result.json, curves: $output/curves.png"

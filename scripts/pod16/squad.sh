#!/usr/bin/env bash
# Fine-tune on reading comprehension on an IPU-POD16, from one process.
# Usage: bash scripts/pod16/squad.sh RECIPE [--print] [OPTION …]
#
# RECIPE   a name, e.g. bert_base (configs/squad/bert_base_pod16.yaml), or a YAML file
# --print  show the command instead of running it
# OPTION   of run_squad.py, e.g. --dry-run, or --set run.engine_cache=cache
#
# The same command goes on after a stop. RUNS names the folder of runs (default: runs), PYTHON a
# python with an IPU build of Paddle (default: python).
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_on_pod 16

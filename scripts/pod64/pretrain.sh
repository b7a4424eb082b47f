#!/usr/bin/env bash
# Pretrain on an IPU-POD64, from one process.
# Usage: bash scripts/pod64/pretrain.sh RECIPE [--print] [OPTION …]
#
# RECIPE   a name, e.g. bert_base_128 (configs/pretrain/bert_base_128_pod64.yaml), or a YAML file
# --print  show the command instead of running it
# OPTION   of run_pretrain.py, e.g. --dry-run, or --set run.engine_cache=cache
#
# The same command goes on after a stop. RUNS names the folder of runs (default: runs), PYTHON a
# python with an IPU build of Paddle (default: python).
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_on_pod 64

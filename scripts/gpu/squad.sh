#!/usr/bin/env bash
# Fine-tune on reading comprehension on GPUs, a process each.
# Usage: bash scripts/gpu/squad.sh RECIPE [--processes N] [--print] [OPTION …]
#
# RECIPE         a name, e.g. bert_base, or a YAML file
# --processes N  1 (the default) or 8: takes configs/squad/RECIPE_gpu.yaml, _gpu8;
#                for another number name the file _gpu8.yaml and add --set run.replicas=N
# --print        show the command instead of running it
# OPTION         of run_squad.py, e.g. --set run.precision=bf16 or --dry-run
#
# The same command goes on after a stop. RUNS names the folder of runs (default: runs), PYTHON a
# python with a GPU build of Paddle (default: python).
# Several machines: the same command on each, N being all GPUs, with
# NODES=2 MASTER=10.0.0.1:8090 (a free port of the first) and data and runs on a shared disk.
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_on_gpus

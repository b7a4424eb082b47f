#!/usr/bin/env bash
# Pretrain on GPUs, a process each.
# Usage: bash scripts/gpu/pretrain.sh RECIPE [--processes N] [--print] [OPTION …]
#
# RECIPE         a name, e.g. bert_base_128, or a YAML file
# --processes N  1 (the default), 8 or 16: takes configs/pretrain/RECIPE_gpu.yaml, _gpu8, _gpu16;
#                for another number name the file _gpu8.yaml and add --set run.replicas=N
# --print        show the command instead of running it
# OPTION         of run_pretrain.py, e.g. --set run.precision=bf16 or --dry-run
#
# The same command goes on after a stop. RUNS names the folder of runs (default: runs), PYTHON a
# python with a GPU build of Paddle (default: python).
# Several machines: the same command on each, N being all GPUs, with
# NODES=2 MASTER=10.0.0.1:8090 (a free port of the first) and data and runs on a shared disk.
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_on_gpus

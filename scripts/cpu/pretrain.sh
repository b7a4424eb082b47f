#!/usr/bin/env bash
# Pretrain on CPUs.
# Usage: bash scripts/cpu/pretrain.sh RECIPE [--processes N] [--print] [OPTION …]
#
# RECIPE         a name, e.g. bert_base_128, or a YAML file
# --processes N  1 (the default) takes configs/pretrain/RECIPE_cpu.yaml, more RECIPE_cpu4.yaml: two
#                stages x two replicas; for other numbers set run.pipeline and run.replicas as well
# --print        show the command instead of running it
# OPTION         of run_pretrain.py, e.g. --set train.steps=20 or --dry-run
#
# The same command goes on after a stop. RUNS names the folder of runs (default: runs).
# Several machines: the same command on each, N being all processes, with
# NODES=2 MASTER=10.0.0.1:8090 (a free port of the first) and data and runs on a shared disk.
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_on_cpus

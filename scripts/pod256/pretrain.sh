#!/usr/bin/env bash
# Pretrain on an IPU-POD256, from several processes by Graphcore's poprun.
# Usage: HOSTS=host1,host2 IPU_PARTITION=NAME VIPU_SERVER=ADDRESS \
#        bash scripts/pod256/pretrain.sh RECIPE [--print] [OPTION …]
#
# RECIPE   a name, e.g. bert_base_128 (configs/pretrain/bert_base_128_pod256.yaml), or a YAML file
# --print  show the command instead of running it
# OPTION   of run_pretrain.py, e.g. --set run.engine_cache=cache
#
# HOSTS are the machines that drive the pod, with PROCESSES_PER_HOST (default: 1) processes each;
# their number divides the replicas. IPU_PARTITION is a partition of 256 IPUs, and VIPU_SERVER its
# manager. Data and runs lie on a disk that all hosts share.
# The same command goes on after a stop. RUNS names the folder of runs (default: runs), PYTHON a
# python with an IPU build of Paddle (default: python).
source "$(dirname "$0")/../launch.sh"
read_arguments "$@"
launch_by_poprun 256

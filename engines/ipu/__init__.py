"""IPUs: the Program that Paddle's backend compiles, its options, its contract, an emulated pod.

Sources of the facts: Paddle's IPU backend (graphcore/Paddle, branch
ipu_commit/model_runtime_backend_2, October 2022, shortly before Paddle 2.4), PopART's sources
and the IPU recipes of PaddleNLP (model_zoo/bert/static_ipu).
"""

"""What computes an exported model: arrays in, arrays out."""

import os
from pathlib import Path

from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from engines.startup import processor
from inference.batching import run_in_parts
from inference.exported import ONNX_FILE, PADDLE_FILES, PROGRAM_FILES

BF16_FLAGS = ("avx512_bf16", "amx_bf16")
# Shapes that oneDNN keeps its kernels of; without a limit, memory grows with each new one.
_ONEDNN_SHAPES = 32


class PaddleRunner:
    """Paddle Inference, which lets no other thread of Python run while it computes. Not for several
    threads at once."""

    def __init__(self, folder, outputs, settings=None, shape=None):
        """
        Args:
            folder: of an exported model.
            outputs: names of what it computes, in order.
            settings: ``InferenceConfig``; None is plain Paddle on the CPU.
            shape: ``Shape`` of a model for IPUs.

        Raises:
            InputError: a file is missing or damaged, or this machine or this build of Paddle
                cannot do what the settings say.
        """
        from paddle import inference

        settings = settings or InferenceConfig(onednn=False)
        files = PROGRAM_FILES if shape else PADDLE_FILES
        paths = [str(Path(folder) / name) for name in files]
        for path in paths:
            if not os.path.isfile(path):
                raise InputError(path, "no such file", "export the checkpoint anew")
        config = inference.Config(*paths)
        _CONFIGURE[settings.device](config, settings)
        # enable_memory_optim() must not stand beside this in Paddle 3.3.1.
        config.disable_glog_info()
        try:
            predictor = inference.create_predictor(config)
        except (RuntimeError, ValueError) as error:
            raise InputError(folder, f"Paddle cannot load it ({_last_line(error)})",
                             "export the checkpoint anew") from None
        self._settings, self._shape = settings, shape
        # What compiles kernels for each shape gets fewer of them.
        self.rounded_to = 1 if settings.device == "cpu" and not config.mkldnn_enabled() else 8
        self._predictor = predictor
        self._inputs = {name: predictor.get_input_handle(name)
                        for name in predictor.get_input_names()}
        self._outputs = dict(zip(outputs, map(predictor.get_output_handle,
                                              predictor.get_output_names())))

    def run(self, arrays):
        """Takes a dict of arrays, returns the outputs by name."""
        if self._settings.on_ipus:
            from inference.ipu import join_micro_batches

            return {name: join_micro_batches(array, self._settings)
                    for name, array in self._run(arrays).items()}
        return run_in_parts(self._run, arrays, self._shape) if self._shape else self._run(arrays)

    def _run(self, arrays):
        for name, handle in self._inputs.items():
            handle.copy_from_cpu(arrays[name])
        self._predictor.run()
        return {name: handle.copy_to_cpu() for name, handle in self._outputs.items()}

    def close(self):
        """Give the memory back."""
        self._inputs, self._outputs, self._predictor = {}, {}, None


class OnnxRunner:
    """ONNX Runtime on the CPU."""

    def __init__(self, folder, outputs, settings=None, shape=None):
        """As ``PaddleRunner``; of the settings, ``threads`` alone."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors; it warns of each constant that it folds
        options.intra_op_num_threads = threads_of(settings or InferenceConfig())
        self._session = onnxruntime.InferenceSession(
            str(Path(folder) / ONNX_FILE), options, providers=["CPUExecutionProvider"])
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._outputs, self._shape = outputs, shape

    def run(self, arrays):
        """As ``PaddleRunner``."""
        return run_in_parts(self._run, arrays, self._shape) if self._shape else self._run(arrays)

    def _run(self, arrays):
        found = self._session.run(None, {name: arrays[name] for name in self._inputs})
        return dict(zip(self._outputs, found))

    def close(self):
        """Give the memory back."""
        self._session = None


RUNNERS = {"paddle": PaddleRunner, "onnx": OnnxRunner}


def threads_of(settings):
    """CPU threads: what the settings say, or every core that the process may run on."""
    return settings.threads or len(os.sched_getaffinity(0))


def _configure_cpu(config, settings):
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(threads_of(settings))
    flags = processor()[1]
    if settings.precision == "bf16" and not set(BF16_FLAGS) & set(flags):
        raise InputError("inference.precision", f"bf16, but this processor has none of "
                         f"{', '.join(BF16_FLAGS)}", "write fp32")
    if uses_onednn(settings, flags):
        config.enable_mkldnn()
        config.set_mkldnn_cache_capacity(_ONEDNN_SHAPES)
        if settings.precision == "bf16":
            config.enable_mkldnn_bfloat16()
    else:
        config.disable_mkldnn()


def uses_onednn(settings, flags):
    """Whether oneDNN computes, by the settings and the processor's instruction sets."""
    if settings.onednn is None:
        return settings.precision == "bf16" or "avx512f" in flags
    return settings.onednn


def _configure_gpu(config, settings):
    import paddle
    from paddle.inference import PrecisionType

    if not paddle.is_compiled_with_cuda():
        raise InputError("inference.device", "gpu, but this Paddle is built without CUDA",
                         "install paddlepaddle-gpu, or write cpu")
    if settings.gpu_number >= paddle.device.cuda.device_count():
        raise InputError("inference.gpu_number", f"there are {paddle.device.cuda.device_count()} "
                         "GPUs, counted from 0", "write a smaller one")
    precision = {"fp32": PrecisionType.Float32, "fp16": PrecisionType.Half,
                 "bf16": PrecisionType.Bfloat16}[settings.precision]
    config.enable_use_gpu(settings.gpu_memory, settings.gpu_number, precision)


def _configure_ipu(config, settings):
    import paddle

    if not paddle.is_compiled_with_ipu():
        raise InputError("inference.device", "ipu, but this Paddle is built without IPUs",
                         "run it with Graphcore's build, or write cpu")
    config.enable_ipu(settings.ipus, settings.rows_at_once, settings.ipu_pipelining,
                      settings.ipu_batches_per_step)
    config.set_ipu_config(settings.precision == "fp16", settings.ipu_replicas,
                          settings.ipu_available_memory_proportion, settings.ipu_half_partials)


_CONFIGURE = {"cpu": _configure_cpu, "gpu": _configure_gpu, "ipu": _configure_ipu}


def _last_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

"""Sentence encoders of the peers behind one interface, all from the same Hugging Face folder.

Each computes the mean over a text's tokens, normalised. Texts go the usual way of each: the peers
take them in the order of arrival, 32 at once, padded to the longest.
"""

import numpy as np

from inference.processes import MOST_PROCESSES

USUAL_BATCH = 32
MAX_TOKENS = 384


class Ours:
    """The exported folder through ``inference.predictor``."""

    def __init__(self, models, threads):
        from engines import startup

        startup.prepare(threads)
        from configs.inference_schema import InferenceConfig
        from inference.predictor import open_predictor

        self.predictor = open_predictor(models["exported"], settings=InferenceConfig(
            threads=threads, **self.settings))
        self.predictor.task.max_tokens = MAX_TOKENS

    settings = {}

    def embed_ids(self, ids):
        """``[batch, sequence]`` ids without padding to ``[batch, hidden]``."""
        from inference.tasks import Piece

        pieces = [Piece(tuple(row), len(row)) for row in ids.tolist()]
        return np.array([found["embedding"] for found in self.predictor.compute(pieces)])

    def embed_texts(self, texts):
        """A list of texts to ``[texts, hidden]``."""
        answers = self.predictor.answers([{"text": text} for text in texts])
        return np.array([answer["embedding"] for answer in answers], np.float32)


class OursProcesses(Ours):
    """The same in processes of a thread each, as files and the server are answered."""

    def __init__(self, models, threads):
        self.settings = {"processes": min(threads, MOST_PROCESSES)}
        super().__init__(models, threads)


class OursOneDnn(Ours):
    """The same with oneDNN."""

    settings = {"onednn": True}


class OursBf16(Ours):
    """The same in bf16."""

    settings = {"onednn": True, "precision": "bf16"}


class _Peer:
    """The usual way: a fast tokenizer, batches in the order of arrival."""

    def _open_tokenizer(self, models):
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(models["huggingface"])

    def embed_ids(self, ids):
        """As ``Ours.embed_ids``."""
        return self._embed(ids.astype(np.int64), np.ones(ids.shape, np.int64))

    def embed_texts(self, texts):
        """As ``Ours.embed_texts``."""
        parts = []
        for start in range(0, len(texts), USUAL_BATCH):
            batch = self.tokenizer(texts[start:start + USUAL_BATCH], padding=True,
                                   truncation=True, max_length=MAX_TOKENS, return_tensors="np")
            parts.append(self._embed(batch["input_ids"], batch["attention_mask"]))
        return np.concatenate(parts)


class Torch(_Peer):
    """transformers on torch, fp32."""

    bf16 = False

    def __init__(self, models, threads):
        import torch
        from transformers import AutoModel

        torch.set_num_threads(threads)
        self._open_tokenizer(models)
        self.torch, self.network = torch, AutoModel.from_pretrained(models["huggingface"]).eval()
        if self.bf16:
            self.network = self.network.to(torch.bfloat16)

    def _embed(self, ids, mask):
        torch = self.torch
        with torch.inference_mode():
            ids, mask = torch.from_numpy(ids), torch.from_numpy(mask)
            hidden = self.network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
            return torch.nn.functional.normalize(mean).numpy()


class TorchBf16(Torch):
    """transformers on torch, weights and arithmetic in bf16."""

    bf16 = True


class OnnxRuntime(_Peer):
    """ONNX Runtime on the file that torch exports."""

    def __init__(self, models, threads):
        import onnxruntime

        self._open_tokenizer(models)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(models["onnx"], options,
                                                    providers=["CPUExecutionProvider"])

    def _embed(self, ids, mask):
        return self.session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


class PaddleNlp(_Peer):
    """PaddleNLP's dynamic graph, with the threads and MKL path that this project sets."""

    def __init__(self, models, threads):
        from engines import startup

        startup.prepare(threads)
        import paddle
        from paddlenlp.transformers import BertModel

        self._open_tokenizer(models)
        self.paddle, self.network = paddle, BertModel.from_pretrained(models["paddlenlp"])
        self.network.eval()

    def _embed(self, ids, mask):
        paddle = self.paddle
        with paddle.no_grad():
            hidden = self.network(paddle.to_tensor(ids),
                                  attention_mask=paddle.to_tensor(mask))[0].numpy()
        mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


PEERS = {"ours": Ours, "ours_processes": OursProcesses, "ours_onednn": OursOneDnn,
         "ours_bf16": OursBf16, "onnxruntime": OnnxRuntime, "torch": Torch,
         "torch_bf16": TorchBf16, "paddlenlp": PaddleNlp}
NEED_BF16 = ("ours_bf16",)
"""Refused without such instructions; torch does without them, slowly"""


def export_onnx(huggingface, path):
    """Write what ``OnnxRuntime`` runs."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = AutoModel.from_pretrained(huggingface, attn_implementation="eager")

        def forward(self, input_ids, attention_mask):
            hidden = self.network(input_ids=input_ids,
                                  attention_mask=attention_mask).last_hidden_state
            is_token = attention_mask[:, :, None].to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * is_token).sum(1) / is_token.sum(1))

    names, ids = ["input_ids", "attention_mask"], torch.ones(2, 8, dtype=torch.int64)
    torch.onnx.export(Encoder().eval(), (ids, ids), str(path), input_names=names,
                      output_names=["embedding"], opset_version=17, dynamo=False,
                      dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names})

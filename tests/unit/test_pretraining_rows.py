"""Samples, pairs, masks and rows: what a pretraining batch is made of."""

import dataclasses
import shutil

import numpy as np
import pytest

from configs.errors import InputError
from configs.load import load_config
from data import masking, pairs, rows
from data.batch import word_frequency_loss
from data.pretraining import PretrainingData
from data.shards import Shard, decode_continuations


def make_shard(documents):
    """A shard from lists of sentence lengths; token ids count up from 1000."""
    lengths = np.concatenate(documents)
    return Shard(np.arange(1000, 1000 + lengths.sum(), dtype=np.uint16),
                 np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
                 np.concatenate([[0], np.cumsum([len(d) for d in documents])]).astype(np.uint32))


SHARDS = [make_shard([[5, 6, 7, 4, 9, 30], [3], [8, 8, 8]]), make_shard([[6, 2, 12], [10, 10]])]


def reader(objective, room=20, short_probability=0.0):
    samples = pairs.gather_samples(SHARDS, room, short_probability, seed=3)
    return pairs.SegmentReader(SHARDS, samples, objective, room, seed=3)


def test_samples_reach_the_room_and_cover_every_sentence_once():
    samples = pairs.gather_samples(SHARDS, 20, 0.0, seed=3)
    assert samples.shard.tolist() == [0, 0, 0, 0, 1, 1]
    # 5+6+7+4 reaches 20; 9+30 does; a document's rest stands alone.
    assert samples.first_sentence.tolist() == [0, 4, 6, 7, 0, 3]
    assert samples.end_sentence.tolist() == [4, 6, 7, 10, 3, 5]
    assert samples.document.tolist() == [0, 0, 1, 2, 3, 4]


def test_short_samples_are_the_wanted_share():
    shards = [make_shard([[3] * 60_000])]
    samples = pairs.gather_samples(shards, 30, 0.1, seed=3)
    share = (samples.target < 30).mean()
    # A draw below 0.1 gives 2..30, so 28/29 of it is short; five standard errors.
    assert abs(share - 0.1 * 28 / 29) < 5 * (0.09 / len(samples)) ** 0.5
    assert samples.target.min() == 2


@pytest.mark.parametrize("objective", ["nsp", "sop", "none"])
def test_segments_fit_and_are_never_empty(objective):
    read = reader(objective)
    for epoch in range(50):
        first, second, labels = read.read(np.arange(len(read.samples)), epoch)
        for a, b in zip(first, second):
            assert len(a) >= 1 and len(a) + len(b) <= 20
            assert (len(b) >= 1) == (objective != "none")


def document_of(token):
    """Number of the document that a token of SHARDS' first shard belongs to."""
    ends = np.cumsum([61, 3, 24])
    return int(np.searchsorted(ends, token - 1000, side="right"))


def test_random_next_never_comes_from_the_same_document():
    shards = SHARDS[:1]
    samples = pairs.gather_samples(shards, 20, 0.0, seed=3)
    read = pairs.SegmentReader(shards, samples, "nsp", 20, seed=3)
    seen = {0: 0, 1: 0}
    for epoch in range(300):
        for a, b, label in zip(*read.read(np.arange(len(samples)), epoch)):
            assert (document_of(a[0]) != document_of(b[0])) == bool(label)
            if not label and len(a) + len(b) < 20:
                assert b[0] == a[-1] + 1  # the true continuation
            seen[int(label)] += 1
    # One sample of four has a single sentence and so always a random next: 1/4 + 3/4 * 1/2.
    assert abs(seen[1] / (seen[0] + seen[1]) - 0.625) < 0.06


def test_sentence_order_swaps_half_of_the_pairs():
    read = reader("sop")
    labels = []
    for epoch in range(200):
        first, second, swapped = read.read(np.arange(len(read.samples)), epoch)
        for a, b, label in zip(first, second, swapped):
            assert (b[0] < a[0]) == bool(label)
        labels += swapped.tolist()
    assert abs(np.mean(labels) - 0.5) < 5 * 0.5 / len(labels) ** 0.5


def test_truncation_takes_from_the_longer_segment():
    read = reader("nsp", room=10)
    long, short = np.arange(30), np.arange(3)
    a, b = read._truncate(long, short, 0.5, 0.5)
    assert (len(a), len(b)) == (7, 3)
    a, b = read._truncate(long, long, 0.0, 0.999)
    assert a.tolist() == [0, 1, 2, 3, 4] and b.tolist() == [25, 26, 27, 28, 29]


def test_masked_share_and_replacement_shares():
    length, batch = 100, 4000
    maskable = np.ones((batch, length), bool)
    maskable[:, [0, 50, 99]] = False
    counts = np.full(batch, length)
    masked = masking.choose_masked(maskable, counts, 0.15, 20, 1, 0, np.arange(batch))
    assert (masked.sum(axis=1) == 15).all() and not masked[:, [0, 50, 99]].any()
    # Every maskable position alike: 15/97 of the rows, five standard errors.
    expected = 15 / 97
    error = (expected * (1 - expected) / batch) ** 0.5
    assert abs(masked[:, maskable[0]].mean(axis=0) - expected).max() < 5 * error
    tokens = np.full((batch, length), 7, np.int32)
    hidden = masking.replace_masked(tokens, masked, 103, 30522, 1, 0, np.arange(batch))
    assert (hidden[~masked] == 7).all()
    assert abs((hidden[masked] == 103).mean() - 0.8) < 5 * 0.4 / masked.sum() ** 0.5
    assert abs((hidden[masked] == 7).mean() - 0.1) < 5 * 0.3 / masked.sum() ** 0.5


@pytest.mark.parametrize("tokens, wanted", [(3, 1), (10, 2), (100, 15), (200, 20)])
def test_number_of_predictions(tokens, wanted):
    maskable = np.zeros((1, 200), bool)
    maskable[0, 1:tokens - 1] = True
    masked = masking.choose_masked(maskable, np.array([tokens]), 0.15, 20, 1, 0, np.array([5]))
    assert masked.sum() == wanted


def test_predictions_come_first_and_cls_behind_them():
    #                 CLS  a  b  c  SEP  d  SEP pad
    masked = np.array([[0, 0, 1, 0, 0, 1, 0, 0]], bool)
    is_token = np.array([[1, 1, 1, 1, 1, 1, 1, 0]], bool)
    is_cls = np.array([[1, 0, 0, 0, 0, 0, 0, 0]], bool)
    slots = rows.predictions_first_slots(masked, is_token, is_cls, max_predictions=3)
    assert slots.tolist() == [[3, 2, 0, 4, 5, 1, 6, 8]]
    text = np.arange(10, 18)[None]
    assert rows.scatter(text, slots).tolist() == [[12, 15, 11, 10, 13, 14, 16, 0]]


def test_each_sequence_has_its_cls_slot_and_absent_ones_leave_padding():
    # Slots 0 and 1 are for predictions, 2 to 4 for three [CLS]; the row holds two sequences.
    is_cls = np.array([[1, 0, 0, 1, 0, 0, 0, 0]], bool)
    masked = np.array([[0, 0, 0, 0, 1, 0, 0, 0]], bool)
    is_token = np.array([[1, 1, 1, 1, 1, 1, 0, 0]], bool)
    slots = rows.predictions_first_slots(masked, is_token, is_cls, 2, sequences_per_row=3)
    assert slots.tolist() == [[2, 1, 5, 3, 0, 6, 8, 8]]
    # The slot of the third is taken only when no other is left.
    is_token[:] = True
    slots = rows.predictions_first_slots(masked, is_token, is_cls, 2, sequences_per_row=3)
    assert slots.tolist() == [[2, 1, 5, 3, 0, 6, 7, 4]]


def test_full_rows_of_any_depth_use_every_slot_once():
    random = np.random.default_rng(0)
    for depth in range(1, 5):
        is_cls = np.zeros((50, 40), bool)
        is_cls[:, 10 * np.arange(depth)] = True
        masked = (random.random(is_cls.shape) < 0.1) & ~is_cls
        slots = rows.predictions_first_slots(masked, np.ones_like(masked), is_cls, 15, 4)
        assert (np.sort(slots, axis=1) == np.arange(40)).all()


def test_too_many_predictions_or_sequences_are_refused():
    is_cls = np.array([[1, 0, 0, 1, 0, 0, 0, 0]], bool)
    is_token = np.ones((1, 8), bool)
    with pytest.raises(ValueError, match="2 sequences in a row, but 1 slots"):
        rows.predictions_first_slots(~is_token, is_token, is_cls, 3)
    with pytest.raises(ValueError, match="6 masked tokens in a row, but 3 slots"):
        rows.predictions_first_slots(~is_cls, is_token, is_cls, 3, 2)


def test_rows_read_back_as_their_text(tiny_config):
    data = PretrainingData(tiny_config())
    batch, cls, sep = data.batch(0, 64), data.tokenizer.cls, data.tokenizer.sep
    labels, weights = (batch.labels[f"masked_lm_{kind}"] for kind in ("labels", "weights"))
    for row in range(64):
        tokens = batch.input_ids[row].copy()
        predicted = weights[row] > 0
        tokens[:7][predicted] = labels[row][predicted]
        real = batch.sequence_id[row] == 1
        in_order = tokens[real][np.argsort(batch.position_ids[row][real])]
        assert sorted(batch.position_ids[row][real]) == list(range(real.sum()))
        assert in_order[0] == cls and in_order[-1] == sep and (in_order == sep).sum() == 2
        assert batch.input_ids[row, 7] == cls and batch.position_ids[row, 7] == 0
        types = batch.token_type_ids[row][real][np.argsort(batch.position_ids[row][real])]
        boundary = int(np.flatnonzero(in_order == sep)[0]) + 1
        assert not types[:boundary].any() and types[boundary:].all()


def test_weights_sum_to_one(tiny_config):
    labels = PretrainingData(tiny_config()).batch(5, 24).labels
    assert labels["masked_lm_weights"].sum() == pytest.approx(1, abs=1e-6)
    assert labels["pair_weights"].sum() == pytest.approx(1, abs=1e-6)


def test_any_batch_can_be_made_first(tiny_config):
    data = PretrainingData(tiny_config())
    later = data.batch(len(data) + 40, 8)  # in the second epoch
    data.batch(0, 8)
    again = PretrainingData(tiny_config()).batch(len(data) + 40, 8)
    for name, array in later.inputs.items():
        assert (array == again.inputs[name]).all()


def test_a_batch_may_cross_the_end_of_an_epoch(tiny_config):
    data = PretrainingData(tiny_config())
    end = len(data)
    across = data.batch(end - 3, 6)
    assert (across.input_ids[:3] == data.batch(end - 3, 3).input_ids).all()
    assert (across.input_ids[3:] == data.batch(end, 3).input_ids).all()


def test_epochs_draw_other_masks(tiny_config):
    data = PretrainingData(tiny_config())
    first, second = data._rows(0, np.arange(50)), data._rows(1, np.arange(50))
    assert (first["input_ids"] != second["input_ids"]).any(axis=1).all()


def test_another_vocabulary_is_refused(tiny_config):
    config = tiny_config("model.vocabulary=data/vocabularies/bert_base_chinese.txt")
    with pytest.raises(InputError, match="was prepared with data/vocabularies/bert_base_uncased"):
        PretrainingData(config)


def test_a_vocabulary_larger_than_the_embedding_is_refused(tiny_config):
    with pytest.raises(InputError, match="has 30522 tokens, but model.vocab_size is 30000"):
        PretrainingData(tiny_config("model.vocab_size=30000"))


def test_one_document_has_no_random_next(tmp_path, tiny_config):
    import prepare_data

    source = tmp_path / "one.txt"
    source.write_text("First sentence of it.\nSecond sentence of it.\n" * 50)
    prepare_data.main(["--config", "configs/pretrain/quickstart.yaml", "--input", str(source),
                       "--output", str(tmp_path / "one"), "--set", "data.held_out_share=0.0"])
    with pytest.raises(InputError, match="must come from another document"):
        PretrainingData(tiny_config(f"data.directory={tmp_path / 'one'}"))
    sop = tiny_config(f"data.directory={tmp_path / 'one'}", "data.pair_objective=sop")
    assert len(PretrainingData(sop)) > 0


def test_unprepared_and_damaged_folders_are_named(tmp_path, prepared, tiny_config):

    with pytest.raises(InputError, match="run prepare_data.py"):
        PretrainingData(tiny_config(f"data.directory={tmp_path / 'nothing'}"))
    damaged = tmp_path / "damaged"
    shutil.copytree(prepared, damaged)
    tokens = damaged / "shard_00000" / "train" / "tokens.bin"
    tokens.write_bytes(tokens.read_bytes()[:1000])
    with pytest.raises(InputError, match="tokens.bin: has 1000 bytes, not "):
        PretrainingData(tiny_config(f"data.directory={damaged}"))


def test_word_frequency_loss_against_a_plain_sum(tiny_config):
    data = PretrainingData(tiny_config())
    batch = data.batch(0, 4)
    counts = data.token_counts + 1.0
    losses = [-np.log(counts[label] / counts.sum())
              for label, weight in zip(batch.labels["masked_lm_labels"].ravel(),
                                       batch.labels["masked_lm_weights"].ravel()) if weight]
    assert word_frequency_loss(data.token_counts, batch) == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("masking", ["whole_word", "ngram"])
def test_words_are_masked_whole(tiny_config, masking):
    data = PretrainingData(tiny_config(f"data.masking={masking}"))
    pieces = data.tokenizer.continuation_pieces()
    batch = data.batch(0, 200)
    broken = whole = 0
    for row in range(200):
        position = batch.position_ids[row]
        token, masked = np.zeros(48, int), np.zeros(48, bool)
        weights = batch.labels["masked_lm_weights"][row]
        real = batch.sequence_id[row] == 1
        token[position[real]] = batch.input_ids[row][real]
        predicted = np.flatnonzero(weights)
        token[position[predicted]] = batch.labels["masked_lm_labels"][row][predicted]
        masked[position[predicted]] = True
        inside = np.flatnonzero(pieces[token])
        # A segment that was cut at its front may begin inside a word.
        specials = data.tokenizer.cls, data.tokenizer.sep
        inside = inside[~np.isin(token[inside - 1], specials)]
        broken += (masked[inside] != masked[inside - 1]).sum()
        whole += masked[inside].sum()
    assert broken == 0 and whole > 50


def test_chinese_words_are_masked_whole(tmp_path):
    import prepare_data

    recipe = "configs/pretrain/quickstart_ernie_zh.yaml"
    prepare_data.main(["--config", recipe, "--output", str(tmp_path / "zh"), "--workers", "1"])
    config = load_config(recipe, [f"data.directory={tmp_path / 'zh'}", "data.masking=whole_word"])
    data = PretrainingData(config)
    numbers = np.arange(50)
    first, second, _ = data.reader.read(numbers, 0)
    text = rows.join_segments(first, second, 128, data.tokenizer)
    tokens, continues = decode_continuations(text.tokens, len(data.tokenizer))
    assert 0.2 < continues[text.is_token].mean() < 0.5
    text = dataclasses.replace(text, tokens=tokens)
    masked = data._choose_masked(text, continues, np.ones((50, 1), bool), 0, numbers)
    row, position = np.nonzero(continues[:, 1:] & ~text.is_special[:, :-1])
    position += 1
    assert (masked[row, position] == masked[row, position - 1]).all() and masked.any()


def test_samples_are_cut_once_and_then_mapped(tiny_config, tmp_path, prepared, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("samples_*"))
    first = PretrainingData(tiny_config(f"data.directory={folder}"))

    def never(*arguments):
        raise AssertionError("cut again")

    monkeypatch.setattr(pairs, "gather_samples", never)
    again = PretrainingData(tiny_config(f"data.directory={folder}"))
    assert (again.batch(5, 20).input_ids == first.batch(5, 20).input_ids).all()
    kept, = folder.glob("samples_train_*.npy")
    kept.write_bytes(kept.read_bytes()[:200])
    with pytest.raises(InputError, match="is damaged; remove the file"):
        PretrainingData(tiny_config(f"data.directory={folder}"))


def test_held_out_text_can_be_masked_otherwise(tiny_config):
    """As a recipe that masks tokens would, so that both can be compared."""
    batches = {}
    for name, options in (("mixed", ["data.masking=ngram", "data.held_out_masking=token"]),
                          ("ngram", ["data.masking=ngram"]), ("token", ["data.masking=token"])):
        config = tiny_config(*options)
        batches[name] = [PretrainingData(config, split).batch(0, 8)
                         for split in ("train", "held_out")]
    for number, other in ((0, "ngram"), (1, "token")):
        for key, array in batches["mixed"][number].inputs.items():
            assert np.array_equal(array, getattr(batches[other][number], key))
    assert not np.array_equal(batches["mixed"][1].input_ids, batches["ngram"][1].input_ids)

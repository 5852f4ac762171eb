"""What is learnt of a pair, the features it gives, and the correction they make."""

import numpy as np
import polars as pl
import pytest
from corpus import WORDS, segments

from doubtless.errors import InputError
from doubtless.surface.features import LEAST, features, likeliest, of_probability
from doubtless.surface.kernel import KernelRegression
from doubtless.surface.learn import learn, table_of
from doubtless.surface.model import Surface, _pieces
from doubtless.surface.table import keys
from doubtless.surface.units import NOTHING, Units


@pytest.fixture(scope="module")
def known():
    return segments(400)


@pytest.fixture(scope="module")
def surface(known):
    table = table_of([learn("et-en", known)])
    fitted = segments(400, 1)
    x = features(table, "et-en", fitted["src"], fitted["mt"])
    regression = KernelRegression.fit(x, fitted["human"].to_numpy(), centres=200, noise=0.3, width=0.3)
    return Surface(table, {"et-en": regression})


def code(word):
    return Units.of(pl.Series([word])).codes


def test_translations_are_learnt(surface):
    for source, target in WORDS.items():
        kind = "et-en forth"
        right = surface.table.look(keys(kind, code(source), code(target)), 0.0)[0]
        other = surface.table.look(keys(kind, code(source), code("anything")), 0.0)[0]
        assert right > of_probability(np.array([0.7]))[0] > other
    assert len(surface.table.lower) > 2 * len(WORDS)


def test_the_table_has_the_probabilities_of_a_plain_implementation(known):
    """IBM model 1 by a loop over dictionaries, with the same five rounds."""
    pairs = [(["", *row["src"].split()], row["pe"].split()) for row in known[:60].iter_rows(named=True)]
    chance = {(s, t): 1.0 for source, target in pairs for s in source for t in target}
    seen = {}
    for source, _ in pairs:
        for word in source:
            seen[word] = seen.get(word, 0) + 1
    for _ in range(5):
        expected = dict.fromkeys(chance, 0.0)
        for source, target in pairs:
            for t in target:
                total = sum(chance[s, t] for s in source)
                for s in source:
                    expected[s, t] += chance[s, t] / total
        sums = {}
        for (s, _), value in expected.items():
            sums[s] = sums.get(s, 0.0) + value
        chance = {(s, t): value / sums[s] for (s, t), value in expected.items()}
    table = table_of([learn("et-en", known[:60])])
    for (s, t), value in chance.items():
        sure = value * seen[s] / (seen[s] + 0.5)
        first = code(s) if s else np.array([NOTHING], dtype=np.uint64)
        found = table.look(keys("et-en forth", first, code(t)), 0.0)[0]
        expected_code = of_probability(np.array([sure]))[0] if sure > LEAST else 0.0
        assert found == pytest.approx(expected_code, abs=0.51 / 255 + 1e-9), (s, t)


def test_the_likeliest_partner_is_that_of_a_loop(surface):
    rows = segments(30, 2)
    left, right = Units.of(rows["src"]), Units.of(rows["mt"])
    best, partner = likeliest(surface.table, "et-en forth", left, right)
    for i, (unit, row) in enumerate(zip(right.codes, right.owner, strict=True)):
        candidates = np.append(np.uint64(NOTHING), left.codes[left.owner == row])
        values = surface.table.look(keys("et-en forth", candidates, unit), 0.0)
        assert best[i] == values.max()
        assert partner[i] == candidates[values.argmax()]


def test_rates_of_wrong_units_are_drawn_to_the_usual_rate(known, surface):
    tokens = known["mt_tok"].str.split(" ").explode()
    bad = (known["mt_tags"].explode() == "BAD").to_numpy()
    usual = bad.mean()
    first = np.array([NOTHING], dtype=np.uint64)
    assert surface.table.look(keys("et-en wrong", first), 0.0)[0] == pytest.approx(usual, abs=0.002)
    word = tokens[0]
    mine = (tokens == word).to_numpy()
    expected = (bad[mine].sum() + 5 * usual) / (mine.sum() + 5)
    assert surface.table.look(keys("et-en wrong", code(word)), 0.0)[0] == pytest.approx(expected, abs=0.003)


def test_numbers_are_compared_in_whatever_digits():
    from doubtless.surface.features import _same_numbers

    assert _same_numbers("४० हजार, 7", "40 thousand and 8") == (0.5, 0.5, 2, 2)
    assert _same_numbers("none", "none") == (1.0, 1.0, 0, 0)
    assert _same_numbers("9" * 10_000, "9")[2] == 250  # pieces: Python refuses very long ones


def test_new_segments_are_told_apart(surface):
    new = segments(300, 3)
    found = surface.correction(new["lp"], new["src"], new["mt"])
    assert np.corrcoef(found, new["human"])[0, 1] > 0.8


def test_other_pairs_are_left_alone(surface):
    new = segments(10, 4)
    for lp in (None, "", "en-et", "de-en"):
        assert not surface.correction([lp] * 10, new["src"], new["mt"]).any()
    mixed = surface.correction(["et-en", None] * 5, new["src"].to_list(), new["mt"].to_list())
    assert mixed[::2].all()
    assert not mixed[1::2].any()


def test_rows_do_not_depend_on_each_other(surface):
    new = segments(300, 5)
    whole = surface.correction(new["lp"], new["src"], new["mt"])
    alone = [surface.correction(["et-en"], [new["src"][i]], [new["mt"][i]])[0] for i in (0, 17, 299)]
    np.testing.assert_allclose(alone, whole[[0, 17, 299]], atol=1e-12)


@pytest.mark.parametrize("mt", ["", " ", "\u200d", "12345" * 2_000, "a " * 3_000, "家" * 500, "\x00"])
def test_odd_texts_have_finite_corrections(surface, mt):
    assert np.isfinite(surface.correction(["et-en"] * 2, ["", "maja koer"], [mt, mt])).all()


def test_long_texts_are_read_as_far_as_an_encoder_reads(surface):
    begin, end = " ".join(["maja", "koer"] * 150), " ".join(["kaks"] * 60_000)
    whole = surface.correction(["et-en"], [f"{begin} {end}"], [f"{begin} {end}"])
    other = surface.correction(["et-en"], [f"{begin} {end}"], [f"{begin} {end} kaks"])
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole, other, atol=0.05)  # but for the numbers of characters and signs


def test_pieces_hold_all_rows_and_few_meetings():
    rng = np.random.default_rng(0)
    src, mt = (["x" * size for size in rng.integers(0, 2_000, size=700)] for _ in range(2))
    pieces = list(_pieces(list(range(0, 700, 2)), src, mt))
    assert [row for piece in pieces for row in piece] == list(range(0, 700, 2))
    for piece in pieces:
        meetings = sum((min(len(src[row]), 300) + 1) * min(len(mt[row]), 300) for row in piece)
        assert len(piece) == 1 or (meetings <= 1_000_000 and len(piece) <= 256)
    assert len(list(_pieces(list(range(256)), ["a"] * 256, ["b"] * 256))) == 1


def test_a_saved_one_is_the_same(surface, tmp_path):
    surface.save(tmp_path / "surface.npz")
    again, new = Surface.load(tmp_path / "surface.npz"), segments(40, 6)
    assert again.digest() == surface.digest()
    texts = new["lp"], new["src"], new["mt"]
    np.testing.assert_allclose(again.correction(*texts), surface.correction(*texts), atol=1e-5)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 broken"])
def test_a_damaged_file_is_one_sentence(tmp_path, content):
    (tmp_path / "surface.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"surface.npz: this is not a correction of scores"):
        Surface.load(tmp_path / "surface.npz")


def test_a_file_without_its_parts_is_refused(tmp_path):
    np.savez(tmp_path / "surface.npz", other=np.zeros(3))
    with pytest.raises(InputError, match="not a correction"):
        Surface.load(tmp_path / "surface.npz")


@pytest.mark.parametrize("part", ["table/starts", "table/values", "et-en/weights", "et-en/spread"])
def test_a_file_whose_parts_do_not_fit_is_refused(surface, tmp_path, part):
    path = tmp_path / "surface.npz"
    surface.save(path)
    with np.load(path) as file:
        held = {name: file[name] for name in file.files}
    np.savez(path, **{**held, part: held[part][:-1]})
    with pytest.raises(InputError, match="do not fit together"):
        Surface.load(path)


def test_a_tagged_token_of_very_many_signs_is_cut_with_its_tag(known):
    token = "!" * 400
    odd = known[:20].with_columns(
        mt_tok=pl.format("{} {}", "mt_tok", pl.lit(token)),
        mt_tags=pl.concat_list("mt_tags", pl.lit("BAD")),
    )
    table = table_of([learn("et-en", odd)])
    assert table.look(keys("et-en wrong", code("!")), 0.0)[0] > 0.95

"""Every layout and every error of the STS readers, on files the tests write and on the real data where it is."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.sts import LAYOUTS, NAMES, PARTS, Dataset, Pairs, load_sts, read_pairs, read_stsb

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [(5.0, "A plane.", 'A "plane'), (0.25, "Two\u2028men", "One man"), (3.0, "Naïve café", "日本")]
SENTEVAL_NAMES = {"sts12": {"OnWN": "surprise.OnWN", "SMTnews": "surprise.SMTnews"}}
COUNTS = {
    "sts12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "OnWN": 750, "SMTnews": 399},
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    "sts15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16": dict(zip(PARTS["sts16"], (254, 249, 230, 244, 209), strict=True)),
    "stsb-train": {"stsb-train": 5749},
    "stsb-dev": {"stsb-dev": 1500},
    "stsb-test": {"stsb-test": 1379},
}


def rows_of(pairs: Pairs) -> list[tuple[float, str, str]]:
    return list(zip(pairs.scores.tolist(), pairs.sentences1, pairs.sentences2, strict=True))


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def tsv(rows: list[tuple[float, str, str]]) -> str:
    return "score\tsentence1\tsentence2\n" + "".join(f"{y}\t{a}\t{b}\n" for y, a, b in rows)


def write_tsv(folder: Path, name: str, *, leave_out: tuple[str, ...] = ("SMT",)) -> None:
    for part in PARTS[name]:
        if part not in leave_out:
            write(folder / name / f"{part}.tsv", tsv(ROWS))


def write_senteval(folder: Path, name: str, *, lower: bool = False, leave_out: tuple[str, ...] = ("SMT",)) -> None:
    """The organisers' files, with an unscored pair at the beginning and at the end."""
    place = folder / f"STS{name[3:]}-en-test"
    for part in PARTS[name]:
        stem = SENTEVAL_NAMES.get(name, {}).get(part, part)
        inputs = "Not\tScored\n" + "".join(f"{a}\t{b} \n" for _, a, b in ROWS) + "Nor\tThis\n"
        write(place / f"STS.gs.{stem}.txt", "\n" + "".join(f"{y}\n" for y, _, _ in ROWS) + "\n")
        if part not in leave_out:
            write(place / f"STS.input.{stem}.txt", inputs.lower() if lower else inputs)


def write_stsb(folder: Path, *, lower: bool = False) -> None:
    for split in ("train", "dev", "test"):
        lines = [f"main\tMSRvid\t2012\t0001\t{y}\t{a}\t{b}" for y, a, b in ROWS]
        lines[1] += "\thttps://source/one\thttps://source/two"
        text = "\n".join(lines) + "\n"
        write(folder / f"sts-{split}.csv", text.lower() if lower else text)


# A user's own file


@pytest.mark.parametrize("header", ["", "score\tsentence1\tsentence2\n", "Score\tText\tText\r\n", "\n\nscore\ta\tb\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_read_pairs(tmp_path: Path, header: str, bom: bytes, end: str, *, zipped: bool) -> None:
    lines = [f"{y}\t{a} \t {b}" for y, a, b in ROWS]
    data = bom + (header + end.join([lines[0], "", " ", *lines[1:]])).encode()  # blank lines are left out
    path = write(tmp_path / ("mine.tsv.gz" if zipped else "mine.tsv"), gzip.compress(data) if zipped else data)
    pairs = read_pairs(path)
    assert pairs.name == "mine"
    assert rows_of(pairs) == ROWS
    assert read_pairs(str(path), "other").name == "other"


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            *[st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8")).filter(str.strip)] * 2,
        ),
        min_size=1,
    )
)
def test_read_pairs_returns_any_written_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str, str]]
) -> None:
    path = write(tmp_path_factory.mktemp("any") / "any.tsv", tsv(rows))
    assert rows_of(read_pairs(path)) == [(y, a.strip(), b.strip()) for y, a, b in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.tsv is empty"),
        ("score\tsentence1\tsentence2\n", "bad.tsv holds no scored sentence pair"),
        ("1\ta\tb\n2\ta\n", r"line 2: 3 tab-separated columns were expected, 2 seen: '2\\ta'"),
        ("1\ta\tb\tc\n", "line 1: 3 tab-separated columns were expected, 4 seen"),
        ("1\ta\tb\n\n2\ta\n", "line 3: 3 tab-separated columns were expected, 2 seen"),
        ("1,a dog,a cat\n", "line 1: 3 tab-separated columns were expected, 1 seen; commas were seen where tabs"),
        ("a dog\ta cat\t4.5\n", "'a dog' seen; the score comes first: write 4.5<TAB>sentence1<TAB>sentence2"),
        ("\n \n", "bad.tsv holds no scored sentence pair"),
        ("gold\ta\tb\n", "line 1: a finite number was expected as gold score, 'gold' seen"),
        ("1\ta\tb\nscore\tsentence1\tsentence2\n", "line 2: a finite number"),
        ("nan\ta\tb\n", "line 1: a finite number was expected as gold score, 'nan' seen"),
        ("1\ta\tb\n-inf\ta\tb\n", "line 2: a finite number"),
        ("1e999\ta\tb\n", "line 1: a finite number"),
        ("1_0\ta\tb\n", "line 1: a finite number"),
        ("\ta\tb\n", "line 1: a finite number"),
        ("1\t \tb\n", "line 1: a sentence of the pair is empty"),
        (b"1\ta\tb\n1\t\xff\tb\n", r"line 2: byte 2 \(0xff\) is not UTF-8; convert it"),
        (b"\xef\xbb\xbf1\ta\tb\n\n\xe9", r"line 3: byte 0 \(0xe9\) is not UTF-8"),
        (b"\x1f\x8bnot gzip at all", "not a whole gzip file"),
        (gzip.compress(b"1\ta\tb\n", mtime=0)[:-9], "not a whole gzip file"),
        (b"\xef\xbb\xbf", "bad.tsv is empty"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path / "bad.tsv", text)
    with pytest.raises(DatasetError, match=message) as caught:
        read_pairs(path)
    assert str(path) in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no file .*none\.tsv.*give one with score"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(DatasetError, match="cannot be read"):
        read_pairs(tmp_path)


def test_long_lines_are_shortened_in_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "long.tsv", "x" * 100_000)
    with pytest.raises(DatasetError) as caught:
        read_pairs(path)
    assert len(str(caught.value)) < len(str(path)) + 200


# The dataclasses


def test_pairs_are_checked_and_frozen() -> None:
    scores = np.array([1.0, 2.0])
    pairs = Pairs("toy", ("a", "b"), ("c", "d"), scores)
    scores[0] = 9
    assert pairs.scores.tolist() == [1.0, 2.0]
    assert len(pairs) == 2
    with pytest.raises(ValueError, match="read-only"):
        pairs.scores[0] = 3
    with pytest.raises(DatasetError, match=r"toy: .* differ in length: \(1, 2, 2\)"):
        Pairs("toy", ("a",), ("c", "d"), scores)
    with pytest.raises(DatasetError, match=r"toy: .* differ in length"):
        Pairs("toy", ("a", "b"), ("c", "d"), scores[:, None])
    with pytest.raises(DatasetError, match="toy: there is no scored sentence pair"):
        Pairs("toy", (), (), np.array([]))
    with pytest.raises(DatasetError, match="toy: gold score 1 is nan"):
        Pairs("toy", ("a", "b"), ("c", "d"), np.array([1.0, np.nan]))


def test_dataset_counts_parts_and_has_a_fingerprint() -> None:
    one, two = (Pairs("toy", ("a",), ("b",), np.array([y])) for y in (1.0, 2.0))
    dataset = Dataset.of(one)
    assert (dataset.name, dataset.parts, dataset.missing, dataset.layout) == ("toy", (one,), (), "pairs")
    assert len(Dataset("both", (one, two))) == 2
    assert dataset.fingerprint == Dataset("other name", (one,), ("X",), "raw").fingerprint
    assert dataset.fingerprint != Dataset.of(two).fingerprint
    with pytest.raises(DatasetError, match="at least one sub-testset"):
        Dataset("none", ())


# The layouts


@pytest.mark.parametrize("name", PARTS)
def test_every_year_in_every_layout(tmp_path: Path, name: str) -> None:
    write_tsv(tmp_path / "sts", name)
    write_senteval(tmp_path / "senteval/downstream/STS", name)
    write_senteval(tmp_path / "senteval_tok/downstream/STS", name, lower=True)
    for layout in LAYOUTS:
        dataset = load_sts(name, tmp_path, layout)
        assert (dataset.name, dataset.layout) == (name, layout)
        assert dataset.missing == (("SMT",) if name == "sts13" else ())
        assert [part.name for part in dataset.parts] == [part for part in PARTS[name] if part != "SMT"]
        for part in dataset.parts:
            assert rows_of(part) == [(y, a.lower(), b.lower()) if layout == "tok" else (y, a, b) for y, a, b in ROWS]
    assert load_sts(name, tmp_path).layout == "tsv"


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_split_in_every_layout(tmp_path: Path, split: str) -> None:
    write(tmp_path / f"sts/stsb/{split}.tsv", tsv(ROWS))
    write_stsb(tmp_path / "senteval/downstream/STS/STSBenchmark")
    write_stsb(tmp_path / "senteval_tok/downstream/STS/STSBenchmark", lower=True)
    for layout in LAYOUTS:
        dataset = load_sts(f"stsb-{split}", str(tmp_path), layout)
        (part,) = dataset.parts
        assert (dataset.layout, dataset.missing, part.name) == (layout, (), f"stsb-{split}")
        assert rows_of(part) == [(y, a.lower(), b.lower()) if layout == "tok" else (y, a, b) for y, a, b in ROWS]
    archive = read_stsb(tmp_path / "senteval/downstream/STS/STSBenchmark", split)
    assert (archive.name, archive.layout, rows_of(archive.parts[0])) == (f"stsb-{split}", "raw", ROWS)


@pytest.mark.parametrize("below", ["data/downstream/STS", "downstream/STS", "STS", "."])
@pytest.mark.parametrize("lower", [False, True])
def test_load_sts_accepts_any_folder_of_senteval(tmp_path: Path, below: str, *, lower: bool) -> None:
    write_senteval(tmp_path / below, "sts14", lower=lower)
    write_stsb(tmp_path / below / "STSBenchmark", lower=lower)
    layout, other = ("tok", "raw") if lower else ("raw", "tok")
    for name in ("sts14", "stsb-dev"):
        assert load_sts(name, tmp_path).layout == layout
        assert load_sts(name, tmp_path, layout).layout == layout
        with pytest.raises(DatasetError, match=f"holds {name} as '{layout}', not as '{other}'"):
            load_sts(name, tmp_path, other)


def test_load_sts_accepts_the_innermost_folder(tmp_path: Path) -> None:
    write_senteval(tmp_path, "sts14")
    write_tsv(tmp_path, "sts16")
    write_stsb(tmp_path / "anywhere")
    write(tmp_path / "stsb/dev.tsv", tsv(ROWS))
    assert load_sts("sts14", tmp_path / "STS14-en-test").layout == "raw"
    assert load_sts("sts16", tmp_path / "sts16").layout == "tsv"
    assert load_sts("stsb-test", tmp_path / "anywhere").layout == "raw"
    assert load_sts("stsb-dev", tmp_path / "stsb").layout == "tsv"
    # `headlines.tsv` of another year must not pass for this year's.
    with pytest.raises(DatasetError, match="sts15 is not in"):
        load_sts("sts15", tmp_path / "sts16")
    with pytest.raises(DatasetError, match="sts15 is not in"):
        load_sts("sts15", tmp_path / "STS14-en-test")


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tsv(tmp_path / "sts", "sts12")
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path))
    assert len(load_sts("sts12")) == 15
    monkeypatch.delenv("ENSEMBED_DATA")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="set ENSEMBED_DATA"):
        load_sts("sts12")


def test_a_licensed_smt_is_used(tmp_path: Path) -> None:
    write_senteval(tmp_path / "senteval/downstream/STS", "sts13", leave_out=())
    write_tsv(tmp_path / "sts", "sts13", leave_out=())
    for layout in ("raw", "tsv"):
        dataset = load_sts("sts13", tmp_path, layout)
        assert dataset.missing == ()
        assert tuple(part.name for part in dataset.parts) == PARTS["sts13"]
    (tmp_path / "senteval/downstream/STS/STS13-en-test/STS.gs.SMT.txt").unlink()
    with pytest.raises(DatasetError, match=r"sts13 is not complete: there is no .*STS\.gs\.SMT\.txt$"):
        load_sts("sts13", tmp_path, "raw")


def test_four_column_inputs(tmp_path: Path) -> None:
    write_senteval(tmp_path, "sts16")
    path = tmp_path / "STS16-en-test/STS.input.plagiarism.txt"
    write(path, "".join(f"{line}\tsource one\tsource two\n" for line in path.read_bytes().decode().split("\n")[:-1]))
    assert {tuple(rows_of(part)) for part in load_sts("sts16", tmp_path).parts} == {tuple(ROWS)}


# What can be wrong with a folder


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no STS data set 'sts17'; choose one of sts12, .*stsb-test"):
        load_sts("sts17", tmp_path)
    with pytest.raises(DatasetError, match="no layout 'xml'; choose one of tsv, raw, tok"):
        load_sts("sts12", tmp_path, "xml")
    with pytest.raises(DatasetError, match="no split 'valid'"):
        read_stsb(tmp_path, "valid")
    with pytest.raises(DatasetError, match="is not a folder"):
        load_sts("sts12", tmp_path / "none")


def test_error_lists_the_files_that_were_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="sts12 is not in") as caught:
        load_sts("sts12", tmp_path)
    assert isinstance(caught.value, AbsentDatasetError)
    for path in (
        "sts/sts12/MSRpar.tsv",
        "senteval/downstream/STS/STS12-en-test/STS.input.MSRpar.txt",
        "senteval_tok/downstream/STS/STS12-en-test/STS.input.MSRpar.txt",
        "data/downstream/STS/STS12-en-test/STS.input.MSRpar.txt",
    ):
        assert str(tmp_path / path) in str(caught.value)
    with pytest.raises(DatasetError, match=r"stsb-dev is not in .* as tok") as caught:
        load_sts("stsb-dev", tmp_path, "tok")
    assert str(tmp_path / "sts-dev.csv") in str(caught.value)
    assert "dev.tsv" not in str(caught.value)
    with pytest.raises(DatasetError, match=r"there is no .*sts-dev\.csv"):
        read_stsb(tmp_path, "dev")


def test_an_incomplete_year_is_an_error(tmp_path: Path) -> None:
    write_tsv(tmp_path, "sts12", leave_out=("MSRvid", "OnWN"))
    with pytest.raises(DatasetError, match=r"sts12 is not complete: there is no .*MSRvid\.tsv, .*OnWN\.tsv$") as caught:
        load_sts("sts12", tmp_path)
    assert not isinstance(caught.value, AbsentDatasetError), "some of it is there"


@pytest.mark.parametrize(
    ("inputs", "gold", "message"),
    [
        ("a\tb\nc\td\n", "1\n", r"STS\.input\.FNWN\.txt has 2 lines but .*STS\.gs\.FNWN\.txt has 1"),
        ("a\tb\nc\td\n", "1\n2\n\n", "has 2 lines but .* has 3"),
        ("a\tb\nc\td\n", "\n\n", r"STS\.gs\.FNWN\.txt holds no scored sentence pair"),
        ("a\tb\nc\td\n", "1\ntwo\n", r"STS\.gs\.FNWN\.txt, line 2: a finite number"),
        ("a\tb\nc\td\n", "1\nnan\n", r"STS\.gs\.FNWN\.txt, line 2: a finite number"),
        ("a\tb\nc\n", "1\n2\n", r"STS\.input\.FNWN\.txt, line 2: 2 or 4 tab-separated columns"),
        ("a\tb\n\td\n", "1\n2\n", r"STS\.input\.FNWN\.txt, line 2: a sentence of the pair is empty"),
        ("", "", r"STS\.input\.FNWN\.txt is empty"),
    ],
)
def test_bad_senteval_files_are_named(tmp_path: Path, inputs: str, gold: str, message: str) -> None:
    write_senteval(tmp_path, "sts13")
    write(tmp_path / "STS13-en-test/STS.input.FNWN.txt", inputs)
    write(tmp_path / "STS13-en-test/STS.gs.FNWN.txt", gold)
    with pytest.raises(DatasetError, match=message):
        load_sts("sts13", tmp_path)


def test_a_bad_benchmark_row_is_named(tmp_path: Path) -> None:
    write(tmp_path / "sts-dev.csv", "g\tf\ty\ti\t1\ta\tb\ng\tf\ty\ti\t1\ta\tb\textra\n")
    with pytest.raises(DatasetError, match=r"sts-dev\.csv, line 2: 7 or 9 tab-separated columns were expected, 8 seen"):
        read_stsb(tmp_path, "dev")


# The real data


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_real_counts(sts_data: Path, name: str, layout: str) -> None:
    dataset = load_sts(name, sts_data, layout)
    assert {part.name: len(part) for part in dataset.parts} == COUNTS[name]
    assert dataset.layout == layout
    assert dataset.missing == (("SMT",) if name == "sts13" else ())
    for part in dataset.parts:
        assert 0 <= part.scores.min() < part.scores.max() <= 5


@pytest.mark.parametrize("name", NAMES)
def test_real_layouts_agree(sts_data: Path, name: str) -> None:
    tsv_set, raw, tok = (load_sts(name, sts_data, layout) for layout in LAYOUTS)
    assert tsv_set.fingerprint == raw.fingerprint != tok.fingerprint
    for a, b, c in zip(tsv_set.parts, raw.parts, tok.parts, strict=True):
        assert rows_of(a) == rows_of(b)
        assert a.scores.tolist() == c.scores.tolist()


@pytest.mark.parametrize(("split", "nine"), [("train", 197), ("dev", 22), ("test", 284)])
def test_real_rows_of_nine_columns(sts_data: Path, split: str, nine: int) -> None:
    folder = sts_data / "senteval/downstream/STS/STSBenchmark"
    columns = [line.split("\t") for line in (folder / f"sts-{split}.csv").read_bytes().decode().split("\n")[:-1]]
    wide = [i for i, row in enumerate(columns) if len(row) == 9]
    assert len(wide) == nine
    (part,) = read_stsb(folder, split).parts
    for i in wide:
        assert (part.sentences1[i], part.sentences2[i]) == (columns[i][5].strip(), columns[i][6].strip())
        assert part.scores[i] == float(columns[i][4])


def test_real_folders_can_be_pointed_at(sts_data: Path) -> None:
    for layout, folders in {
        "tsv": ("sts", "sts/sts12"),
        "raw": ("senteval", "senteval/downstream", "senteval/downstream/STS", "senteval/downstream/STS/STS12-en-test"),
        "tok": ("senteval_tok", "senteval_tok/downstream/STS"),
    }.items():
        for folder in folders:
            assert load_sts("sts12", sts_data / folder).layout == layout


def test_real_overlap(sts_data: Path) -> None:
    """The Benchmark's test split is drawn from the years: shared pairs, in either order, as the data's notes count."""

    def pairs(name: str) -> list[frozenset[str]]:
        parts = load_sts(name, sts_data, "tsv").parts
        return [frozenset(pair) for part in parts for pair in zip(part.sentences1, part.sentences2, strict=True)]

    test = pairs("stsb-test")
    shared = {name: sum(pair in found for pair in test) for name in PARTS if (found := set(pairs(name)))}
    assert shared == {"sts12": 253, "sts13": 72, "sts14": 204, "sts15": 199, "sts16": 285}

"""Ensembles and meta-encoders, on encoders that need no file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import repeating, texts

from ensembed import Ensemble, MetaEncoder, ObjectEncoder, ViewStore, load
from ensembed.encoders import DemoEncoder, EncoderLike
from ensembed.encoders.base import PROBES, Encoder, EncoderSpec
from ensembed.errors import DimensionError, EncoderError, InputError, ModelError, SentenceError, UnknownEncoderError
from ensembed.methods import GCCA, METHODS, SVD, Auto, Average, Concat, Meta, Method, UpProjection, make_method

NAMES = ["demo?dim=5&seed=1", "demo?dim=4&seed=2", "demo?dim=6&seed=3"]
SENTENCES = [
    f"{who} {does} the {what}" for who in ("one", "a dog", "she") for does in ("sees", "has") for what in "abcd"
]
NEW = ["she has a dog", "something else entirely", "one sees the a"]


class Fragile(Encoder):
    """A demo encoder that counts what it encodes and does something else when told to."""

    def __init__(self, dim: int = 5, seed: int = 7, name: str = "fragile") -> None:
        self._inner = DemoEncoder(dim, seed, name=name)
        self.encoded = 0
        self.instead: Callable[[], NDArray[Any]] | None = None

    @property
    def spec(self) -> EncoderSpec:
        return self._inner.spec

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        self.encoded += len(sentences)
        return self.instead() if self.instead else self._inner.embed(sentences)


class Plain:
    """Not an encoder, but it has `encode`."""

    def __init__(self, seed: int = 0) -> None:
        self._inner = DemoEncoder(5, seed)

    def encode(self, sentences: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._inner.encode(sentences).tolist()
        return vectors


def _raise(error: BaseException) -> Callable[[], NDArray[Any]]:
    def fail() -> NDArray[Any]:
        raise error

    return fail


FAILURES: list[Callable[[], NDArray[Any]]] = [
    _raise(ConnectionError("the server is down")),
    _raise(EncoderError("'fragile' is out of memory")),
    lambda: np.full((len(NEW), 5), np.nan),
    lambda: np.zeros((1, 2)),
]


@pytest.mark.parametrize("method", [Concat(), Average(), SVD(dim=4), GCCA(dim=4)])
def test_encoding_is_transforming_what_the_members_say(method: Method) -> None:
    encoders = [DemoEncoder(5, 1), DemoEncoder(4, 2), DemoEncoder(6, 3)]
    model = Ensemble(encoders).fit(SENTENCES, method)
    views = [encoder.encode(NEW) for encoder in encoders]
    expected = method.fit([encoder.encode(SENTENCES) for encoder in encoders]).transform(views)
    assert model.encode(NEW).dtype == np.float32
    assert oracles.error(model.encode(NEW), expected) < 1e-6
    assert model.spec.dim == expected.shape[1]


def test_an_up_projection_is_an_ensemble_of_one() -> None:
    model = Ensemble(["demo?dim=5"]).fit(SENTENCES, UpProjection(dim=50))
    assert model.encode(NEW).shape == (3, 50)


@pytest.fixture(scope="module", params=METHODS)
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MetaEncoder:
    """A meta-encoder of every method."""
    given: dict[str, dict[str, Any]]
    given = {
        "auto": {"dim": 4, "weights": (1, 0.5, 0.2)},
        "svd": {"dim": 4},
        "gcca": {"dim": 4},
        "ae": {"dim": 4, "epochs": 3},
        "up": {"dim": 50},
    }
    parameters = given.get(request.param, {})
    members = NAMES[:1] if request.param == "up" else NAMES
    store = ViewStore(tmp_path_factory.mktemp("views"))
    return Ensemble(members).fit(SENTENCES, make_method(request.param, **parameters), store=store)


# Few words, so that the sentences share some with each other and with what was fitted on; and anything at all.
WORDS = st.lists(st.sampled_from(["one", "a", "dog", "she", "sees", "the", "else", "?"]), max_size=6).map(" ".join)


@given(sentences=repeating(WORDS | texts), data=st.data())
def test_a_row_does_not_depend_on_the_place_of_its_sentence(
    fitted: MetaEncoder, sentences: list[str], data: st.DataObject
) -> None:
    rows = fitted.encode(sentences)
    order = data.draw(st.permutations(range(len(sentences))))
    np.testing.assert_allclose(fitted.encode([sentences[i] for i in order]), rows[order], rtol=1e-5, atol=1e-6)
    for i, sentence in enumerate(sentences):
        np.testing.assert_array_equal(rows[i], rows[sentences.index(sentence)])
    i = data.draw(st.integers(0, len(sentences) - 1))
    np.testing.assert_allclose(fitted.encode([sentences[i]])[0], rows[i], rtol=1e-5, atol=1e-6)


def test_similarity_is_the_cosine_and_zero_for_a_zero_vector() -> None:
    model = Ensemble(NAMES).fit(SENTENCES, Concat())
    a, b = oracles.unit(model.encode(NEW)), oracles.unit(model.encode(["a dog", ""]))
    assert oracles.error(model.similarity(NEW, ["a dog", ""]), a @ b.T) < 1e-6
    assert not model.similarity(NEW, [""]).any()
    assert model.similarity(NEW, []).shape == (3, 0)


def test_truncating_takes_the_first_dimensions() -> None:
    model = Ensemble(NAMES).fit(SENTENCES, SVD(dim=5))
    short = model.truncate(2)
    assert oracles.error(short.encode(NEW), model.encode(NEW)[:, :2]) < 1e-6
    assert short.spec.key != model.spec.key
    assert short.corpus == model.corpus


def test_no_sentences_give_no_vectors() -> None:
    assert Ensemble(NAMES).fit(SENTENCES, GCCA(dim=4)).encode([]).shape == (0, 4)


def test_encode_refuses_a_wrong_list_of_sentences() -> None:
    model = Ensemble(NAMES).fit(SENTENCES, Concat())
    for bad in (b"a sentence", ["fine", 3], ["\ud800"]):
        with pytest.raises(SentenceError):
            model.encode(bad)  # type: ignore[arg-type] # it is refused


@pytest.mark.parametrize(("encoders", "message"), [
    ("demo", r"write \['demo'\]"),
    ([], "at least one encoder"),
    (["demo?seed=1", "demo?seed=1"], "is a member twice"),
    ([Plain(1), Plain(2)], "is a member twice"),
    ([3], "an encoder is a name or an object with `encode`, not int"),
])  # fmt: skip
def test_ensemble_refuses_a_wrong_list_of_encoders(encoders: Any, message: str) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=message):
        Ensemble(encoders)


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(UnknownEncoderError):
        Ensemble(["no-such-encoder"])


def test_a_meta_embedding_of_other_views_is_refused() -> None:
    meta = Concat().build([5, 4])
    with pytest.raises(InputError, match=r"takes views of \[5, 4\], the members give \[5, 4, 6\]"):
        MetaEncoder(Ensemble(NAMES), meta)
    with pytest.raises(InputError, match="missing is 'error', 'drop' or 'predict', not 'ignore'"):
        MetaEncoder(Ensemble(NAMES[:2]), meta, missing="ignore")  # type: ignore[arg-type] # it is refused


def test_a_second_fit_does_not_encode_again(tmp_path: Path) -> None:
    encoder, store = Fragile(), ViewStore(tmp_path)
    ensemble = Ensemble([encoder, *NAMES])
    ensemble.fit(SENTENCES, SVD(dim=3), store=store)
    assert encoder.encoded == len(SENTENCES)
    ensemble.fit(SENTENCES, GCCA(dim=4), store=store)
    Ensemble([encoder, "demo"]).fit(SENTENCES, SVD(dim=2), store=store)
    assert encoder.encoded == len(SENTENCES)


def test_concatenating_without_sentences_needs_no_encoding_at_all() -> None:
    encoder = Fragile()
    assert Ensemble([encoder, *NAMES]).fit([], Concat()).corpus == ""
    assert encoder.encoded == 0


def test_concatenating_encodes_no_more_sentences_than_its_leading_directions_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ensembed.models.ensemble.SAMPLE", 5)
    encoder = Fragile()
    model = Ensemble([encoder, *NAMES]).fit(SENTENCES, Concat())
    assert encoder.encoded == 5
    assert model.truncate(2).encode(NEW).shape == (len(NEW), 2)
    np.testing.assert_array_equal(model.encode(NEW), Ensemble([Fragile(), *NAMES]).fit([], Concat()).encode(NEW))


def test_a_meta_encoder_is_an_encoder(tmp_path: Path) -> None:
    inner = Ensemble(NAMES[:2]).fit(SENTENCES, GCCA(dim=3))
    outer = Ensemble([inner, NAMES[2]]).fit(SENTENCES, SVD(dim=4))
    views = [inner.encode(NEW), DemoEncoder(6, 3).encode(NEW)]
    assert oracles.error(outer.encode(NEW), outer.meta.transform(views)) < 1e-6
    outer.save(tmp_path / "m")
    with pytest.raises(ModelError, match="is an object: pass it as load"):
        load(tmp_path / "m")
    again = load(tmp_path / "m", encoders={inner.spec.name: inner})
    np.testing.assert_array_equal(again.encode(NEW), outer.encode(NEW))


def test_the_spec_tells_models_apart_by_what_they_give() -> None:
    ensemble = Ensemble(NAMES)
    keys = [ensemble.fit(SENTENCES, method).spec.key for method in (SVD(dim=3), GCCA(dim=3), GCCA(dim=3, tau=1.0))]
    assert len(set(keys)) == 3
    assert ensemble.fit(SENTENCES, SVD(dim=3)).spec.key == keys[0]
    assert ensemble.fit(SENTENCES[:-3], SVD(dim=3)).spec.key != keys[0]
    others = Ensemble([*NAMES[:2], "demo?dim=6&seed=4"])
    assert others.fit(SENTENCES, Concat()).spec.key != ensemble.fit(SENTENCES, Concat()).spec.key


def test_the_spec_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Ensemble(NAMES).fit(SENTENCES, SVD(dim=3))
    calls: list[int] = []
    transform = Meta.transform

    def count(meta: Meta, views: Sequence[Any]) -> NDArray[np.float32]:
        calls.append(len(views))
        return transform(meta, views)

    monkeypatch.setattr(Meta, "transform", count)
    model.encode(NEW)
    calls.clear()
    model.encode(NEW)
    assert len(calls) == 1


@pytest.mark.parametrize("method", [SVD(dim=4), GCCA(dim=4), Average()])
@pytest.mark.parametrize("failure", FAILURES)
def test_going_on_without_a_member_is_transforming_without_its_view(
    method: Method, failure: Callable[[], NDArray[Any]]
) -> None:
    fragile, model = _with_fragile(method, "drop")
    expected = model.meta.transform([None, *(DemoEncoder(d, s).encode(NEW) for d, s in ((5, 1), (4, 2), (6, 3)))])
    fragile.instead = failure
    for _ in range(3):  # one after the other and side by side
        with pytest.warns(RuntimeWarning, match="going on without encoder 'fragile'"):
            found = model.encode(NEW)
        assert oracles.error(found, expected) < 1e-6
    fragile.instead = None
    assert oracles.error(model.encode(NEW), expected) > 1e-3


@pytest.mark.parametrize("failure", FAILURES)
def test_a_member_that_fails_is_named(failure: Callable[[], NDArray[Any]]) -> None:
    fragile, model = _with_fragile(GCCA(dim=4), "error")
    fragile.instead = failure
    for _ in range(3):
        with pytest.raises(EncoderError, match="'fragile'"):
            model.encode(NEW)


def test_members_that_all_fail_are_an_error_even_when_dropping() -> None:
    fragile = Fragile()
    model = MetaEncoder(Ensemble([fragile]), Concat().build([5]), missing="drop")
    fragile.instead = FAILURES[0]
    with pytest.raises(EncoderError, match=r"every member of .* failed: .*fragile"):
        model.encode(NEW)


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_an_interrupt_is_not_a_failure(missing: Literal["error", "drop"]) -> None:
    fragile, model = _with_fragile(GCCA(dim=4), missing)
    model.encode(NEW)  # so that both schedules get their turn
    fragile.instead = _raise(KeyboardInterrupt())
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            model.encode(NEW)


def _with_fragile(method: Method, missing: Literal["error", "drop"]) -> tuple[Fragile, MetaEncoder]:
    fragile = Fragile()
    fitted = Ensemble([fragile, *NAMES]).fit(SENTENCES, method)
    return fragile, MetaEncoder(fitted.ensemble, fitted.meta, missing=missing)


def test_objects_are_passed_again_when_loading(tmp_path: Path) -> None:
    members: list[EncoderLike] = [
        ObjectEncoder(Plain(1), name="one"),
        ObjectEncoder(Plain(2), name="two", revision="r2"),
        NAMES[0],
    ]
    model = Ensemble(members).fit(SENTENCES, GCCA(dim=4))
    model.save(tmp_path / "m")
    with pytest.raises(ModelError, match=r"member 'one' is an object: pass it as load\(..., encoders={'one': it}\)"):
        load(tmp_path / "m")
    given: list[dict[str, EncoderLike]] = [
        {"one": Plain(1), "two": Plain(2)},
        {"one": members[0], "two": members[1]},
    ]
    for encoders in given:
        again = load(tmp_path / "m", encoders=encoders)
        np.testing.assert_array_equal(again.encode(NEW), model.encode(NEW))
        assert [encoder.spec for encoder in again.ensemble.encoders] == [e.spec for e in model.ensemble.encoders]


def test_an_encoder_that_has_changed_is_refused(tmp_path: Path) -> None:
    _with_fragile(GCCA(dim=4), "error")[1].save(tmp_path / "m")
    for changed, message in [
        (Fragile(seed=8), "is not the encoder this model was fitted on"),
        (Fragile(dim=6), "gives 6 dimensions instead of 5"),
    ]:
        missing: Literal["error", "drop"]
        for missing in ("error", "drop"):
            with pytest.raises(ModelError, match=f"member 'fragile' .*{message}"):
                load(tmp_path / "m", encoders={"fragile": changed}, missing=missing)
    assert load(tmp_path / "m", encoders={"fragile": Fragile()}).encode(NEW).shape == (3, 4)


def test_an_encoder_that_rounds_differently_is_still_the_same(tmp_path: Path) -> None:
    _with_fragile(GCCA(dim=4), "error")[1].save(tmp_path / "m")
    rounded = Fragile()
    rounded.instead = lambda: np.round(DemoEncoder(5, 7).encode(PROBES), 2)
    assert load(tmp_path / "m", encoders={"fragile": rounded}).ensemble.encoders[0] is rounded


def test_an_encoder_that_knows_no_word_of_the_probes_can_be_loaded(tmp_path: Path) -> None:
    ignorant = Fragile()
    ignorant.instead = lambda: np.zeros((2, 5))
    MetaEncoder(Ensemble([ignorant]), Concat().build([5])).save(tmp_path / "m")
    assert load(tmp_path / "m", encoders={"fragile": ignorant}).encode(NEW[:2]).shape == (2, 5)
    with pytest.raises(ModelError, match="is not the encoder"):
        load(tmp_path / "m", encoders={"fragile": Fragile()})


@pytest.mark.parametrize("failure", [None, *FAILURES[:2]])
def test_a_member_that_is_down_when_loading_is_dropped_or_named(
    tmp_path: Path, failure: Callable[[], NDArray[Any]] | None
) -> None:
    _, model = _with_fragile(GCCA(dim=4), "error")
    model.save(tmp_path / "m")
    broken = Fragile()
    broken.instead = failure
    encoders: dict[str, Encoder] = {} if failure is None else {"fragile": broken}
    with pytest.raises((EncoderError, ModelError, UnknownEncoderError), match="'fragile'"):
        load(tmp_path / "m", encoders=encoders)
    with pytest.warns(RuntimeWarning, match="going on without encoder 'fragile'"):
        again = load(tmp_path / "m", encoders=encoders, missing="drop")
    with pytest.warns(RuntimeWarning, match="going on without encoder 'fragile'"):
        found = again.encode(NEW)
    views = [None, *(encoder.encode(NEW) for encoder in model.ensemble.encoders[1:])]
    assert oracles.error(found, model.meta.transform(views)) < 1e-6


@pytest.mark.parametrize("method", [Auto(weights="equal"), Concat(), Average()], ids=str)
def test_truncating_leaves_no_member_out_and_the_whole_vector_as_it_was(method: Method) -> None:
    model = Ensemble(NAMES).fit([f"{text} {i}" for i in range(30) for text in SENTENCES], method)
    whole, short = model.encode(NEW), model.truncate(3)
    np.testing.assert_array_equal(model.encode(NEW), whole)
    assert short.spec.dim == short.encode(NEW).shape[1] == 3
    views = [encoder.encode(NEW) for encoder in model.ensemble.encoders]
    for j in range(len(views)):  # the vectors depend on every member
        without = [None if i == j else view for i, view in enumerate(views)]
        assert np.abs(short.meta.transform(without) - short.encode(NEW)).max() > 1e-3
    np.testing.assert_array_equal(short.truncate(1).encode(NEW).round(5), short.encode(NEW)[:, :1].round(5))
    with pytest.raises(DimensionError, match="cannot truncate to 99"):
        model.truncate(99)

"""What encoders get of a cluster, as the command line says it."""

from __future__ import annotations

import pytest

from ensembed.engines.ray.cluster_resources import Resources, parse_resources, resources_for
from ensembed.errors import InputError


def test_all_settings_are_read() -> None:
    found = parse_resources(
        ["num_cpus=2", "minilm:num_cpus=0.5,num_gpus=0.25,actors=2-8,shards=4,batch_size=64", "demo:actors=3"]
    )
    assert found[""] == Resources(num_cpus=2)
    assert found["minilm"] == Resources(0.5, 0.25, (2, 8), 4, 64)
    assert found["demo"] == Resources(actors=(3, 3))
    assert Resources.parse("actors=2-").actors == (2, None)


@pytest.mark.parametrize("name", ["st:BAAI/bge-small", "demo?dim=8&seed=1", "openai:http://localhost:80/v1#m?a=b,c"])
def test_an_encoder_name_may_contain_colons_and_equals_signs(name: str) -> None:
    assert parse_resources([f"{name}:num_gpus=1"]) == {name: Resources(num_gpus=1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a setting"),
        ("minilm", "'minilm' is not a setting"),
        ("minilm:", "is not a setting"),
        ("cores=2", "'cores=2' is not a setting of resources: they are num_cpus"),
        ("num_cpus=two", "'two'"),
        ("num_cpus=", "cannot be read"),
        ("num_cpus=-1", "at least 0"),
        ("num_cpus=nan", "at least 0"),
        ("num_gpus=1.5", "above 1 must be a whole number"),
        ("actors=0", "at least 1"),
        ("actors=5-2", "in order"),
        ("actors=-3", "cannot be read"),
        ("shards=0", "shards must be a whole number of at least 1, not 0"),
        ("batch_size=0", "batch_size must be a whole number of at least 1, not 0"),
        ("batch_size=2.5", "cannot be read: .*'2.5'"),
        ("num_cpus=1,num_cpus=2", "twice"),
    ],
)
def test_invalid_resources_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_resources([text])


def test_resources_of_one_encoder_are_given_once() -> None:
    with pytest.raises(InputError, match="resources of minilm are given twice"):
        parse_resources(["minilm:num_cpus=1", "minilm:num_cpus=2"])


def test_every_encoder_gets_its_own_or_those_of_all() -> None:
    given = {"a": Resources(2), "": Resources(4)}
    assert [one.num_cpus for one in resources_for(given, ["b", "a"])] == [4, 2]
    assert resources_for({"a": Resources(2)}, ["b", "a"]) == [Resources(), Resources(2)]
    assert resources_for(Resources(3), ["b", "a"]) == [Resources(3)] * 2
    with pytest.raises(InputError, match="'c', which is none of the encoders: a, b"):
        resources_for({"c": Resources()}, ["a", "b"])


def test_a_share_of_a_core_is_one_thread() -> None:
    assert [Resources(n, actors=(1, 4)).threads for n in (0, 0.5, 1, 4)] == [1, 1, 1, 4]


def test_actors_without_cores_or_gpus_need_a_maximum() -> None:
    with pytest.raises(InputError, match="need a maximum"):
        Resources(num_cpus=0)
    assert Resources(num_cpus=0, num_gpus=0.5).actors == (1, None)


def test_a_batch_size_is_a_whole_number() -> None:
    with pytest.raises(InputError, match=r"at least 1, not 2\.5; write it as in"):
        Resources(batch_size=2.5)  # type: ignore[arg-type]  # that is the point

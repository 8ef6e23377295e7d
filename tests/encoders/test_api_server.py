"""Which URL is asked, and which key goes to whom."""

from __future__ import annotations

import pytest

from ensembed.encoders import open_encoder
from ensembed.encoders.openai.api_servers import Server, find_server
from ensembed.errors import InputError

KEY = "sk-very-secret/42"


@pytest.mark.parametrize(
    ("base", "asked"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/embeddings"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/embeddings"),
        ("https://api.openai.com", "https://api.openai.com/v1/embeddings"),
        ("http://localhost:8000/", "http://localhost:8000/v1/embeddings"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/embeddings"),
        ("https://h/v1/embeddings", "https://h/v1/embeddings"),
        ("https://h/v1/embeddings/", "https://h/v1/embeddings"),
        ("https://h/a/b?api-version=1&x=a%20b", "https://h/a/b/embeddings?api-version=1&x=a%20b"),
        ("https://h?api-version=1", "https://h/v1/embeddings?api-version=1"),
    ],
)
def test_base_url_becomes_the_url_of_embeddings(base: str, asked: str) -> None:
    assert find_server(base, "it").url == asked


@pytest.mark.parametrize(
    "url",
    [
        *("", "h", "//h/v1", "ftp://h/v1", "file:///etc/passwd", "https:///v1", "https://h:x/v1", "https://h:99999/v1"),
        *("https://[::1/v1", "https://h i/v1", "https://a..b/v1", "https://münchen.de/v1", f"https://{'a' * 64}.de/v1"),
        *("https://api.openai.com\\.evil.org/v1", "https://h/v1\n", "https://h%2fi/v1"),
    ],
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"^encoder 'openai:.*is not"):
        open_encoder(f"openai:{url}#m")


@pytest.mark.parametrize("name", ["openai:https://h/v1", "openai:https://h/v1#", "openai:https://h/v1?dimensions=3"])
def test_name_without_a_model_says_how_to_write_it(name: str) -> None:
    with pytest.raises(InputError, match=r"names no model: .*openai:https://api.openai.com/v1#text-embedding-3-small$"):
        open_encoder(name)


@pytest.mark.parametrize(
    "url",
    [f"https://me:{KEY}@h.org/v1", f"https://{KEY}@h.org/v1", f"https://a?{KEY}@h.org"]
    + [f"https://h.org/v1?{name}={KEY}" for name in ("key", "api-key", "API_KEY", "access_token", "Subscription-Key")],
)
def test_secrets_in_a_name_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match=r"saved in models; set the variable ENSEMBED_API_KEY_H_ORG to ") as caught:
        open_encoder(f"openai:{url}#m?no-such-option=1")
    assert KEY.split("/", maxsplit=1)[0] not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("https://api.mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("https://API.Mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("https://api.mistral.ai:8443/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI_8443"),
        ("https://api.mistral.ai:8443/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("https://my-host.org", "ENSEMBED_API_KEY_MY__HOST_ORG"),
        ("http://localhost:8000", "ENSEMBED_API_KEY_LOCALHOST_8000"),
        ("http://localhost:8000", "ENSEMBED_API_KEY_LOCALHOST"),
        ("http://127.0.0.1:8000", "ENSEMBED_API_KEY_127_0_0_1"),
        ("http://[::1]:8000", "ENSEMBED_API_KEY_____1_8000"),
        ("http://gpu:8000", "ENSEMBED_API_KEY_GPU_8000"),
        ("http://gpu", "ENSEMBED_API_KEY_GPU_80"),
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://api.openai.com:443/v1", "OPENAI_API_KEY"),
        ("https://api.openai.com/v1", "ENSEMBED_API_KEY_API_OPENAI_COM"),
    ],
)
def test_key_is_sent_to_its_host(url: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert find_server(url, "it").headers.get("Authorization") is None
    monkeypatch.setenv(variable, f" {KEY}\n")
    server = find_server(url, "it")
    assert server.variable == variable
    assert server.headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("https://evil.org/v1", "OPENAI_API_KEY"),
        ("https://api.openai.com.evil.org/v1", "OPENAI_API_KEY"),
        ("https://api-openai.com/v1", "OPENAI_API_KEY"),
        ("http://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://api.openai.com:8443/v1", "OPENAI_API_KEY"),
        ("https://api-mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("https://api_mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("http://api.mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("http://api.mistral.ai:443/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
        ("https://mistral.ai/v1", "ENSEMBED_API_KEY_API_MISTRAL_AI"),
    ],
)
def test_key_is_not_sent_to_other_hosts(url: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, KEY)
    server = find_server(url, "it")
    assert server.key == ""
    assert KEY not in str(server.headers)


def test_variable_with_the_port_comes_first_and_openais_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "third")
    monkeypatch.setenv("ENSEMBED_API_KEY_API_OPENAI_COM", "second")
    assert find_server("https://api.openai.com", "it").key == "second"
    monkeypatch.setenv("ENSEMBED_API_KEY_API_OPENAI_COM_443", "first")
    assert find_server("https://api.openai.com:443", "it").key == "first"


def test_azure_key_has_its_own_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_API_KEY_ME_OPENAI_AZURE_COM", KEY)
    headers = find_server("https://me.openai.azure.com/openai/deployments/d?api-version=2024-02-01", "it").headers
    assert headers["api-key"] == KEY
    assert "Authorization" not in headers


@pytest.mark.parametrize("key", ["two words", "kéy", "a\nb", "a\x00b"])
def test_key_with_invalid_characters_is_refused_and_not_repeated(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"ENSEMBED_API_KEY_H": key})
    with pytest.raises(InputError, match="the key in the variable ENSEMBED_API_KEY_H holds spaces or") as caught:
        find_server("https://h/v1", "it")
    assert key not in str(caught.value)


def test_text_of_a_server_is_shown_without_the_key() -> None:
    server = Server("https://h/v1", "V", "a'b\\c/d")
    for said in ("you sent a'b\\c/d!", "at ?key=a%27b%5Cc%2Fd!", ["you sent a'b\\c/d!"], {"k": "a'b\\c/d\""}):
        shown = server.show(said)
        assert "***" in shown
        assert "b" not in shown
    assert server.show("x" * 75 + "a'b\\c/d", 80) == repr("x" * 75 + "***")
    assert "b\\c" not in repr(server)

"""What a model's card and a push have to know of its members: where they come from, their licence, and who has them.

A pushed model names its members, it does not hold them. Whoever loads it opens them by the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ensembed.encoders.base import EncoderSpec
from ensembed.encoders.kinds import built_in
from ensembed.encoders.names import Request, parse_name
from ensembed.errors import InputError

# The revision of a model that came from the hub: its commit, and perhaps those of the repositories with its code.
_COMMIT = re.compile(r"([0-9a-f]{40})(\+[0-9a-f]{40})*")
_ORIGINAL = re.compile(r"([\w.-]+/[\w.-]+):")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---", re.DOTALL)
_PASSWORD = re.compile("//[^/]*@")


@dataclass(frozen=True)
class Member:
    """A member, as others will see it.

    Attributes:
        spec: everything that pins its numbers.
        licence: of its weights; empty where it is not known.
        base_model: its name on the hub; empty where it has none.
        stays: why others cannot open it by its name; empty where they can.
    """

    spec: EncoderSpec
    licence: str
    base_model: str
    stays: str


def member_of(spec: EncoderSpec, licences: Mapping[str, str] | None = None) -> Member:
    """What is known of a member, from its spec, the catalogue and the hub's cache; nothing is fetched.

    Args:
        spec: the member's.
        licences: what the user knows of licences, by the members' names.
    """
    given = (licences or {}).get(spec.name, "")
    if spec.kind in ("object", "meta"):
        return Member(spec, given, "", "it is an object of your program")
    try:
        request = parse_name(spec.name)
    except InputError as error:
        return Member(spec, given, "", f"its name cannot be opened: {error}")
    commit = _COMMIT.fullmatch(spec.revision)
    if request.entry is not None:
        title = _ORIGINAL.match(request.entry.title)
        return Member(spec, given or request.entry.licence, title[1] if title else "", "")
    if request.scheme == "demo":
        return Member(spec, given or "Apache-2.0", "", "")  # part of ensembed
    if commit is not None and request.scheme in ("st", "model2vec"):
        return Member(spec, given or _cached_licence(request.location, commit[1]), request.location, "")
    return Member(spec, given, "", _why_it_stays(request))


def check_members(specs: tuple[EncoderSpec, ...], *, allow_local: bool) -> None:
    """Refuse to give away a model whose members others cannot open, or whose members' names hold a password.

    Raises:
        InputError: such a member, named, and what to do.
    """
    for spec in specs:
        if _PASSWORD.search(spec.name):
            raise InputError(
                f"the name of member {_PASSWORD.sub('//***@', spec.name)!r} holds a user or a password, which "
                "everybody could read on the hub: fit the model again with a member that is named without it"
            )
    found = [member_of(spec) for spec in specs]
    staying = [f"{member.spec.name!r} ({member.stays})" for member in found if member.stays]
    if staying and not allow_local:
        raise InputError(
            f"the model would not open elsewhere, since these members are on this machine alone: {', '.join(staying)}. "
            "Put them on the hub and fit on them by that name, as in st:ORG/NAME; or, if those who load the model have "
            "them too, say so with allow_local_members=True (--allow-local-members): the names above will be public, "
            "and loading takes from_pretrained(..., encoders={NAME: THEIR OWN})"
        )


def _why_it_stays(request: Request) -> str:
    if request.scheme == "openai":
        from ensembed.encoders.openai.api_servers import find_server

        near = find_server(request.location.partition("#")[0], request.shown).nearby
        return "its server is on this machine" if near else ""
    if request.scheme == "tfhub" and request.location.startswith(("http://", "https://")):
        return ""
    if request.scheme in built_in():
        return "it is a file or folder"
    # What a package's scheme takes is the package's affair; but a path that is here is a path.
    try:
        here = bool(request.location) and Path(request.location).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        here = False
    return "it is a file or folder" if here else ""


def _cached_licence(repo: str, commit: str) -> str:
    """The licence that the model's own card gives, if the hub's cache has the card."""
    from huggingface_hub import try_to_load_from_cache

    card = try_to_load_from_cache(repo, "README.md", revision=commit)
    if not isinstance(card, str):
        return ""
    try:
        front = _FRONT.match(Path(card).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    lines = re.finditer(r"(?m)^(license|license_name): *[\"']?([\w.+-]+)", front[1] if front else "")
    said = {line[1]: line[2] for line in lines}
    licence = said.get("license", "")
    return said.get("license_name", licence) if licence == "other" else licence

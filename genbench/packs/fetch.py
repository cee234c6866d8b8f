"""Packs from elsewhere: fetched once, gone on with after a break, and used only as they were published.

Whoever has the machines builds the evidence of a large suite once and puts the folder on any web server or
hub; everyone else scores against it:

    https://HOST/PATH                     the folder, or its pack.json
    hf://datasets/OWNER/NAME[@REV]/PATH   a folder of a data set of the hub (without datasets/: of a model)
    file:///PATH

The sha256 of pack.json, which holds that of every other file, is all that has to be known to trust a pack:
a suite names it in its table [pack], or the address itself does, "https://HOST/PATH#sha256=…". Files lie in a
folder named by that hash, so that packs do not mix, and pack.json is written there last: where it is, the
pack is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.packs.pack import MANIFEST

__all__ = ["FetchProgress", "PackAddress", "fetch_pack", "is_address", "pack_cache", "parse_address"]

_TRIES = 5
_PATIENCE = 30.0
"""Seconds without a byte after which a connection is given up."""
_CHUNK = 2**20
_LARGEST_MANIFEST = 64 * 2**20
_HASH_MARK = "#sha256="


@dataclass(frozen=True)
class PackAddress:
    """Where a pack is published, and the sha256 of its pack.json, if that is known."""

    url: str
    sha256: str | None = None

    def __str__(self) -> str:
        return self.url if self.sha256 is None else f"{self.url}{_HASH_MARK}{self.sha256}"


class FetchProgress(Protocol):
    """Is told what has arrived."""

    def begin(self, files: int) -> None:
        """So many files are to come."""

    def file(self, name: str, size: int | None) -> None:
        """The next one, of so many bytes if the server says so."""

    def arrived(self, size: int) -> None:
        """Bytes of it, those of an earlier try included."""


def is_address(text: str) -> bool:
    """Whether `text` names a pack elsewhere, and not a folder."""
    return "://" in text


def parse_address(text: str) -> PackAddress:
    """The address that a user or a suite gave."""
    url, mark, sha256 = text.partition(_HASH_MARK)
    if mark and (len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef")):
        raise UserError(f"{text!r}: behind {_HASH_MARK} come the 64 hexadecimal digits of pack.json's sha256")
    if url.partition("://")[0] not in ("https", "http", "hf", "file"):
        raise UserError(f"{url!r} is no address of a pack; it begins with https://, hf:// or file://")
    return PackAddress(url.removesuffix("/").removesuffix(f"/{MANIFEST}"), sha256 or None)


def pack_cache() -> Path:
    """Where fetched packs lie: $GENBENCH_PACKS, else ~/.cache/genbench/packs."""
    return Path(
        os.environ.get("GENBENCH_PACKS") or Path.home() / ".cache" / "genbench" / "packs"
    ).expanduser()


def fetch_pack(address: PackAddress, cache: Path, progress: FetchProgress) -> Path:
    """The folder with the whole pack, fetched unless it is there.

    Without a hash the address is asked for its pack.json each time.
    """
    if address.sha256 is not None and _whole(cache / address.sha256, address.sha256):
        return cache / address.sha256
    manifest = _fetched_manifest(address)
    found = hashlib.sha256(manifest).hexdigest()
    if address.sha256 not in (None, found):
        raise UserError(
            f"{address.url} is not the pack that was asked for: the sha256 of its {MANIFEST} is {found}, not "
            f"{address.sha256}; ask whoever published it, or leave out the hash to take it as it is"
        )
    folder = cache / found
    if _whole(folder, found):
        return folder
    files = _listed_files(address, manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            progress.begin(len(files))
            for name, sha256 in files.items():
                _fetch_file(address, folder / name, sha256, progress)
            part = folder / f"{MANIFEST}.part"
            part.write_bytes(manifest)
            part.replace(folder / MANIFEST)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    return folder


def _whole(folder: Path, sha256: str) -> bool:
    path = folder / MANIFEST
    return path.is_file() and file_hash(path) == sha256


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Others who fetch the same pack wait, and then find it there."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _listed_files(address: PackAddress, manifest: bytes) -> dict[str, str]:
    """Name to sha256 of every file that is stored, whatever kind of suite the pack is of."""
    try:
        content = msgspec.json.decode(manifest)
        made_of_others = {*content.get("shared", {}), *content.get("compressed", {})}
        files = {name: sha256 for name, sha256 in _entries(content) if name not in made_of_others}
    except (msgspec.MsgspecError, AttributeError, TypeError):
        raise UserError(f"{address.url} has a {MANIFEST} that is none of an evidence pack") from None
    for name in files:
        if name in (MANIFEST, ".lock", ".", "..", "") or Path(name).name != name or name.endswith(".part"):
            raise UserError(f"the pack {address.url} names a file outside of it: {name!r}")
    return files


def _entries(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, dict):
        name, sha256 = content.get("file"), content.get("sha256")
        if isinstance(name, str) and isinstance(sha256, str):
            yield name, sha256
        for value in content.values():
            yield from _entries(value)
    elif isinstance(content, list):
        for value in content:
            yield from _entries(value)


# -- one file ----------------------------------------------------------------------------------------


def _fetch_file(address: PackAddress, target: Path, sha256: str, progress: FetchProgress) -> None:
    if target.is_file() and file_hash(target) == sha256:
        progress.file(target.name, target.stat().st_size)
        progress.arrived(target.stat().st_size)
        return
    part = target.with_name(f"{target.name}.part")
    resumed = part.is_file()
    _download(address, part, progress)
    if resumed and file_hash(part) != sha256:  # what was there was not the beginning of it
        part.unlink()
        _download(address, part, progress)
    if file_hash(part) != sha256:
        part.unlink()
        raise UserError(
            f"{target.name} of the pack {address.url} is damaged: its sha256 is not the one in {MANIFEST}; "
            "ask whoever published it"
        )
    part.replace(target)


def _download(address: PackAddress, part: Path, progress: FetchProgress) -> None:
    """The whole file into `part`, behind what is there already."""
    url = _file_url(address.url, part.name.removesuffix(".part"))
    for attempt in range(_TRIES):
        have = part.stat().st_size if part.is_file() else 0
        try:
            with _opened(url, have) as answer:
                if answer.status != 206:  # whoever answers knows no ranges, and begins anew
                    have = 0
                length = answer.headers.get("Content-Length")
                whole = None if length is None else have + int(length)
                progress.file(part.name.removesuffix(".part"), whole)
                progress.arrived(have)
                with part.open("r+b" if have else "wb") as file:
                    file.seek(have)
                    while chunk := answer.read(_CHUNK):
                        file.write(chunk)
                        progress.arrived(len(chunk))
            if whole is None or part.stat().st_size >= whole:
                return
        except HTTPError as problem:
            if problem.code == 416 and have:  # nothing comes after what is there
                return
            if problem.code not in (408, 429) and problem.code < 500:
                raise UserError(f"{url} cannot be fetched: {problem.code} {problem.reason}") from None
            said = str(problem)
        except (URLError, HTTPException, TimeoutError, ConnectionError) as problem:
            said = str(getattr(problem, "reason", problem))
        else:
            said = "the connection ended early"
        _pause(attempt)
    raise UserError(
        f"{url} cannot be fetched: {said}; what has arrived is kept, the same command goes on from there"
    )


def _fetched_manifest(address: PackAddress) -> bytes:
    url = _file_url(address.url, MANIFEST)
    for attempt in range(_TRIES):
        try:
            with _opened(url, 0) as answer:
                content: bytes = answer.read(_LARGEST_MANIFEST + 1)
        except HTTPError as problem:
            said = f"{problem.code} {problem.reason}"
            if problem.code < 500 and problem.code not in (408, 429):
                break
        except (URLError, HTTPException, TimeoutError, ConnectionError) as problem:
            said = str(getattr(problem, "reason", problem))
            if isinstance(getattr(problem, "reason", None), FileNotFoundError):
                break
        else:
            if len(content) > _LARGEST_MANIFEST:
                raise UserError(f"{url} has more than {_LARGEST_MANIFEST} bytes; it is no evidence pack's")
            return content
        _pause(attempt)
    raise UserError(f"there is no evidence pack at {address.url}: {url} cannot be fetched ({said})")


def _pause(attempt: int) -> None:
    if attempt + 1 < _TRIES:
        time.sleep(min(8.0, 0.25 * 4**attempt))


def _opened(url: str, offset: int) -> Any:
    headers = {"User-Agent": "genbench", "Accept-Encoding": "identity"}
    token = os.environ.get("HF_TOKEN")
    if token and url.startswith(_hub() + "/"):
        headers["Authorization"] = f"Bearer {token}"
    if offset:
        headers["Range"] = f"bytes={offset}-"
    return urlopen(Request(url, headers=headers), timeout=_PATIENCE)


def _file_url(base: str, name: str) -> str:
    if not base.startswith("hf://"):
        return f"{base}/{quote(name)}"
    from huggingface_hub import hf_hub_url

    kind, place = ("dataset", base[14:]) if base.startswith("hf://datasets/") else ("model", base[5:])
    owner, _, rest = place.partition("/")
    repository, _, folder = rest.partition("/")
    repository, _, revision = repository.partition("@")
    if not owner or not repository:
        raise UserError(f"{base!r} is no address of a pack; write hf://datasets/OWNER/NAME/PATH")
    inside = f"{folder}/{name}" if folder else name
    whose = f"{owner}/{repository}"
    return hf_hub_url(whose, inside, repo_type=kind, revision=revision or None, endpoint=_hub())


def _hub() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)

"""Packs from elsewhere, on a web server in this process that can break, lie and know no ranges."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from genbench.errors import UserError
from genbench.packs import fetch
from genbench.packs.fetch import PackAddress, fetch_pack, parse_address
from genbench.suites import evidence_packs, load_suite

CONTENT = {"weights.safetensors": bytes(range(256)) * 1000, "truth.nc": b"held out" * 999}


@dataclass
class Server:
    """What it holds, how it behaves, and what it was asked."""

    files: dict[str, bytes]
    url: str = ""
    ranges: bool = True
    breaks_after: list[int] = field(default_factory=list)
    """Bytes after which the next answers with a body end early, one each."""
    refusals: list[int] = field(default_factory=list)
    """Codes of the next answers."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and range."""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server({f"/packs/p/{name}": content for name, content in CONTENT.items()})
    state.files["/packs/p/pack.json"] = manifest(CONTENT)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            content = state.files.get(self.path)
            if state.refusals:
                self.send_error(state.refusals.pop(0))
                return
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = len(content)
            if state.breaks_after and not self.path.endswith("pack.json"):
                end = start + state.breaks_after.pop(0)
            self.wfile.write(content[start:end])

        def log_message(self, *words: Any) -> None: ...

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    state.url = f"http://127.0.0.1:{running.server_port}/packs/p"
    yield state
    running.shutdown()
    running.server_close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_pause", lambda attempt: None)


class Seen:
    """Progress as numbers."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes: dict[str, int] = {}
        self.sizes: dict[str, int | None] = {}

    def begin(self, files: int) -> None:
        self.files = files

    def file(self, name: str, size: int | None) -> None:
        self.last, self.bytes[name], self.sizes[name] = name, 0, size

    def arrived(self, size: int) -> None:
        self.bytes[self.last] += size


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(files: dict[str, bytes], **more: Any) -> bytes:
    parts = [{"files": {name: {"file": name, "sha256": sha256(own)}}} for name, own in files.items()]
    return json.dumps({"format": 1, "suite": "s", "cells": parts, **more}).encode()


def fetched(server: Server, cache: Path, pinned: str | None = None) -> Path:
    return fetch_pack(PackAddress(server.url, pinned), cache, Seen())


def assert_whole(folder: Path, server: Server) -> None:
    for path, content in server.files.items():
        assert (folder / Path(path).name).read_bytes() == content
    assert not list(folder.glob("*.part"))


def test_a_pack_is_fetched_once(server: Server, tmp_path: Path) -> None:
    seen = Seen()
    pinned = sha256(server.files["/packs/p/pack.json"])
    folder = fetch_pack(parse_address(f"{server.url}/pack.json#sha256={pinned}"), tmp_path, seen)
    assert_whole(folder, server)
    sizes = {name: len(content) for name, content in CONTENT.items()}
    assert (seen.files, seen.bytes, seen.sizes) == (2, sizes, sizes)
    asked = len(server.asked)
    assert asked == 3
    assert fetched(server, tmp_path, pinned) == folder
    assert len(server.asked) == asked, "what is here needs no network"


def test_without_a_hash_the_server_is_asked_for_it(server: Server, tmp_path: Path) -> None:
    first = fetched(server, tmp_path)
    server.files["/packs/p/truth.nc"] = b"another edition"
    server.files["/packs/p/pack.json"] = manifest({**CONTENT, "truth.nc": b"another edition"})
    second = fetched(server, tmp_path)
    assert first != second
    assert_whole(second, server)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_goes_on_where_it_broke(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges = ranges
    server.breaks_after = [100_000, 50_000]
    assert_whole(fetched(server, tmp_path), server)
    wanted = [range_ for path, range_ in server.asked if path.endswith("weights.safetensors")]
    assert wanted == [None, "bytes=100000-", "bytes=150000-" if ranges else "bytes=50000-"]


def test_the_next_command_goes_on_where_a_killed_one_stopped(server: Server, tmp_path: Path) -> None:
    server.breaks_after = [1000] * 5
    with pytest.raises(UserError, match="the same command goes on from there"):
        fetched(server, tmp_path)
    assert not list(tmp_path.glob("*/pack.json")), "a part of a pack must not look like one"
    assert_whole(fetched(server, tmp_path), server)
    assert ("/packs/p/weights.safetensors", "bytes=5000-") in server.asked


def test_a_beginning_that_belongs_to_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / sha256(server.files["/packs/p/pack.json"])
    folder.mkdir()
    (folder / "truth.nc.part").write_bytes(b"something else")
    (folder / "weights.safetensors.part").write_bytes(b"x" * len(CONTENT["weights.safetensors"]))
    assert_whole(fetched(server, tmp_path), server)


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.refusals = [503, 429]
    assert_whole(fetched(server, tmp_path), server)


def test_a_damaged_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["/packs/p/truth.nc"] = b"held out, but not these"
    with pytest.raises(UserError, match=r"truth\.nc of the pack .* is damaged: its sha256 is not the one"):
        fetched(server, tmp_path)
    assert not list(tmp_path.glob("*/pack.json"))


def test_another_pack_than_the_one_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the pack that was asked for: the sha256 of its pack"):
        fetched(server, tmp_path, "0" * 64)
    assert [path for path, _ in server.asked] == ["/packs/p/pack.json"]


@pytest.mark.parametrize("name", ["../weights", "/etc/passwd", "a/b", "pack.json", ".lock", "x.part", ".."])
def test_files_outside_of_a_pack_are_refused(server: Server, tmp_path: Path, name: str) -> None:
    server.files["/packs/p/pack.json"] = manifest({name: b""})
    with pytest.raises(UserError, match="names a file outside of it"):
        fetched(server, tmp_path)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"null", b'{"shared": 3}'])
def test_what_is_no_manifest_is_refused(server: Server, tmp_path: Path, content: bytes) -> None:
    server.files["/packs/p/pack.json"] = content
    with pytest.raises(UserError, match="is none of an evidence pack"):
        fetched(server, tmp_path)


def test_files_made_of_others_are_not_fetched(server: Server, tmp_path: Path) -> None:
    whole = {"file": "weights.safetensors", "sha256": sha256(CONTENT["weights.safetensors"]), "rows": [0]}
    made = {"row.safetensors": b"not stored", **CONTENT}
    server.files["/packs/p/pack.json"] = manifest(made, shared={"row.safetensors": whole})
    assert_whole(fetched(server, tmp_path), server)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ftp://host/p", "is no address of a pack; it begins with https://, hf:// or file://"),
        ("https://host/p#sha256=12", "behind #sha256= come the 64 hexadecimal digits"),
    ],
)
def test_wrong_addresses(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_address(text)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GENBENCH_PACKS", str(tmp_path))
    assert fetch.pack_cache() == tmp_path
    monkeypatch.delenv("GENBENCH_PACKS")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert fetch.pack_cache() == tmp_path / "home" / ".cache" / "genbench" / "packs"


def test_nothing_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no evidence pack at .*/nowhere: .* \(404 Not Found\)"):
        fetch_pack(PackAddress(f"{server.url}/nowhere"), tmp_path, Seen())
    with pytest.raises(UserError, match="there is no evidence pack at file:"):
        fetch_pack(PackAddress((tmp_path / "nowhere").as_uri()), tmp_path, Seen())


def test_a_folder_of_the_hub(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = server.url.removesuffix("/packs/p")
    monkeypatch.setattr(fetch, "_hub", lambda: host)
    wanted = dict(server.files)
    for path, content in wanted.items():
        server.files[f"/datasets/us/packs/resolve/v2/cifar/{Path(path).name}"] = content
    folder = fetch_pack(parse_address("hf://datasets/us/packs@v2/cifar"), tmp_path, Seen())
    assert_whole(folder, Server(wanted))
    with pytest.raises(UserError, match="write hf://datasets/OWNER/NAME/PATH"):
        fetch_pack(parse_address("hf://datasets/us"), tmp_path, Seen())


# -- as a user has it ----------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, str]:
    """A suite without a pack beside it, its pack in another folder, and the pack's hash."""
    suite = load_suite("nin-fashion")
    pack = evidence_packs.find_pack(suite)
    assert pack is not None
    published = tmp_path / "published"
    shutil.copytree(pack.folder, published)
    path = tmp_path / "mine" / suite.path.name
    path.parent.mkdir()
    shutil.copyfile(suite.path, path)
    monkeypatch.setattr(evidence_packs, "pack_cache", lambda: tmp_path / "cache")
    return path, published, pack.hash


def test_a_suite_names_its_pack(elsewhere: tuple[Path, Path, str], run: Run) -> None:
    path, published, pinned = elsewhere
    with path.open("a") as file:
        file.write(f'\n[pack]\nurl = "{published.as_uri()}"\nsha256 = "{pinned}"\n')
    done = run("networks", "--suite", path, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 1280
    assert "fetching the evidence pack file://" in done.stderr
    shutil.rmtree(published)
    again = run("networks", "--suite", path, "--json")
    assert again.stdout == done.stdout
    assert again.stderr == ""


def test_an_address_on_the_command_line(elsewhere: tuple[Path, Path, str], run: Run) -> None:
    path, published, pinned = elsewhere
    done = run("networks", "--suite", path, "--pack", published.as_uri())
    assert done.returncode == 0, done.stderr
    assert f"to have this very pack again: --pack '{published.as_uri()}#sha256={pinned}'" in done.stderr
    wrong = run("networks", "--suite", path, "--pack", f"{published.as_uri()}#sha256={'0' * 64}")
    assert wrong.returncode == 2
    assert "is not the pack that was asked for" in wrong.stderr


def test_a_wrong_table(elsewhere: tuple[Path, Path, str], run: Run) -> None:
    path, published, _ = elsewhere
    text = path.read_text()
    for table, sentence in (
        (f'url = "{published.as_uri()}"\nsha256 = "12"', "the 64 hexadecimal digits of a sha256"),
        (f'url = "gopher://x"\nsha256 = "{"0" * 64}"', "pack.url: 'gopher://x' is no address of a pack"),
    ):
        path.write_text(f"{text}\n[pack]\n{table}\n")
        done = run("networks", "--suite", path)
        assert done.returncode == 2
        assert sentence in done.stderr

"""A sealed reading has its network and its code, and nothing else: attacks, as root and as nobody."""

from __future__ import annotations

import json
import os
import pwd
import socket
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy
import psutil
import pytest
from probes import CALLS, GOT_THROUGH, NOTHING_TO_TAKE, REFUSED, SEALED, STATUSES, write_network, write_probes

import genbench.suites
from genbench.cli.diagnosis import _sandbox
from genbench.cli.execution import Execution
from genbench.engine.cells import Limits, Outcome, Status
from genbench.engine.host import ReadingHost
from genbench.engine.messages import NetworkPlace, Reading
from genbench.plugin.registry import BUILT_IN, Source, load_registry
from genbench.sealing import landlock, seccomp
from genbench.sealing.seal import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no sandbox here: {missing()}")

PACKS = Path(genbench.suites.__file__).parent / "packs"
OWN = Source(BUILT_IN, "genbench", module="genbench.plugin.builtin")
LIMITS = Limits(60, 2**29)
CELL = Path("store", "cells", "identifying-key")
MEASURES = [name for name, entry in load_registry().measures.items() if entry.source.kind == BUILT_IN]


@contextmanager
def surroundings(folder: Path) -> Iterator[tuple[Path, list[str], Path]]:
    """The plugin of attacks, its measures and a worker's folder in a store; beside them what can be taken."""
    scratch = folder / "store" / "staging" / "run" / "scratch" / "worker"
    scratch.mkdir(parents=True)
    (folder / "store" / "secret").write_text("the truth")
    write_network(folder / CELL)
    (folder / "home").mkdir()
    (folder / "home" / "secret").write_text("a token")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as by_file:
        by_file.bind(str(folder / "socket"))
        by_file.listen()
        places = {
            "here": str(folder), "home": str(folder / "home"), "packs": str(PACKS),
            "sklearn": str(Path(find_spec("sklearn").origin).parent), "given": str(scratch / "given"),
            "port": server.getsockname()[1],
        }  # fmt: skip
        file = folder / "probes_plugin.py"
        yield file, write_probes(file, **places), scratch


@contextmanager
def a_host(folder: Path, scratch: Path | None = None) -> Iterator[ReadingHost]:
    """A worker that holds the network of a cell, as in a run."""
    if scratch is None:
        write_network(folder / CELL)
        scratch = folder / "worker"
        scratch.mkdir()
    host = ReadingHost(scratch)
    host.hold(
        NetworkPlace("identifying-key", "probes:load", "identifying-label", {"cell": str(folder / CELL)}), 5
    )
    try:
        yield host
    finally:
        host.close()


def read(host: ReadingHost, file: Path, names: list[str], limits: Limits = LIMITS) -> dict[str, Outcome]:
    source = Source("file", str(file), module=str(file))
    readings = [Reading(f"identifying {name}", name, 1) for name in names]
    found = host.read(source, readings, limits)
    return {key.removeprefix("identifying "): outcome for key, outcome in found}


def read_own(host: ReadingHost, names: list[str], *, sandbox: bool = True) -> dict[str, Outcome]:
    readings = [Reading(name, name, 3) for name in names]
    return dict(host.read(OWN, readings, Limits(60, 2**31, sandbox=sandbox)))


def attacked(folder: Path) -> dict[str, Outcome]:
    with surroundings(folder) as (file, names, scratch):
        with a_host(folder, scratch) as host:
            found = read(host, file, names)
        assert (folder / "store" / "secret").read_text() == "the truth"
    return found


def problems(found: dict[str, Outcome]) -> dict[str, str]:
    """Attacks that did not end as they must."""
    wrong = {}
    for name, one in found.items():
        said = f"{one.status} {one.value} {one.reason}"
        if one.value == GOT_THROUGH or one.cost.sandbox != "landlock+seccomp":
            wrong[name] = said
        elif name in REFUSED or name in CALLS:
            if one.status is not Status.FAILED or SEALED not in one.reason:
                wrong[name] = said
        elif name in NOTHING_TO_TAKE:
            if one.value != 0.0:
                wrong[name] = said
        elif name in STATUSES:
            _, status, words = STATUSES[name]
            if status not in ("", str(one.status)) or words not in one.reason:
                wrong[name] = said
        if not (one.reason + one.output).replace("\n", "").isprintable():
            wrong[name] = repr(one.reason + one.output)
    return wrong


def test_no_attack_gets_through(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GENBENCH_SECRET", "a token")
    found = attacked(tmp_path)
    assert len(found) == len(REFUSED) + len(CALLS) + len(NOTHING_TO_TAKE) + len(STATUSES) + 1 >= 25
    assert problems(found) == {}
    assert found["prints"].value == 2.0
    assert found["prints"].output.endswith("plain\n")


def test_nor_as_a_user_without_privileges() -> None:
    if os.geteuid():
        pytest.skip("the attacks ran without privileges already")
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            said = "it raised"
            try:
                # Python itself may lie in the home of root: here is what is used of it.
                sysconfig.get_paths()
                _ = numpy.random.seed
                os.setgroups([])
                os.setgid(nobody.pw_gid)
                os.setuid(nobody.pw_uid)
                found = attacked(folder)
                said = json.dumps({"count": len(found), "wrong": problems(found)})
            except BaseException as problem:
                said = repr(problem)
            finally:
                os.write(write_end, said.encode()[:60_000])
                os._exit(0)
        os.close(write_end)
        with open(read_end) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
    answer = json.loads(text)
    assert answer["count"] >= 25
    assert answer["wrong"] == {}


@pytest.fixture(scope="module")
def own_readings(tmp_path_factory) -> dict[bool, dict[str, Outcome]]:
    """All of genbench's own measures, sealed and not."""
    found = {}
    for sandboxed in (True, False):
        with a_host(tmp_path_factory.mktemp("own")) as host:
            found[sandboxed] = read_own(host, MEASURES, sandbox=sandboxed)
    return found


def test_own_measures_are_sealed_too_and_the_same_to_the_bit(own_readings) -> None:
    sealed, bare = own_readings[True], own_readings[False]
    assert len(sealed) == len(MEASURES) >= 80
    assert {name: (o.status, o.result, o.reason) for name, o in sealed.items()} == {
        name: (o.status, o.result, o.reason) for name, o in bare.items()
    }
    assert {o.cost.sandbox for o in sealed.values()} == {"landlock+seccomp"}
    assert {o.cost.sandbox for o in bare.values()} == {"none"}
    assert sum(o.status is Status.OK for o in sealed.values()) > 60


def test_attacks_change_no_honest_reading(tmp_path, own_readings) -> None:
    names = ["path_norm", "sharpness", "inverse_margin", "log_prod_of_spec"]
    attacks = ["takes_rights_away", "sends_infinity", "exits_quietly", "kills_everybody"]
    with surroundings(tmp_path) as (file, _, scratch), a_host(tmp_path, scratch) as host:
        read(host, file, attacks)
        found = read_own(host, names)
    assert all(found[name].result == own_readings[False][name].result for name in names)


PLUGIN = """
import os, sys, time
import genbench

{at_import}

@genbench.measure
def instant(subject):
    "One."
    return 1.0

@genbench.measure
def writes_much(subject):
    "A gigabyte, to its own folder."
    with open("much", "wb") as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
    time.sleep(60)
    return 666.0

@genbench.measure
def leaves_a_daemon(subject):
    "Forks twice, to a session of its own."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
    return 1.0
"""


def plugin(folder: Path, at_import: str = "") -> Path:
    file = folder / "plugin.py"
    file.write_text(PLUGIN.format(at_import=at_import))
    return file


def test_what_is_written_to_the_private_folder_counts_as_memory(tmp_path) -> None:
    with a_host(tmp_path) as host:
        found = read(host, plugin(tmp_path), ["writes_much", "instant"], Limits(60, 2**28))
    assert found["writes_much"].status is Status.OUT_OF_MEMORY
    assert "--memory sets the limit" in found["writes_much"].reason
    assert found["instant"].value == 1.0, "its plugin's process is started again"


UNWILLING = """
try:
    if os.fork() == 0:
        os._exit(0)
except PermissionError:
    pass
else:
    raise ImportError("not in the process of the plugin")

@genbench.measure
def descriptors(subject):
    "Those that are no channel."
    found = 0
    for number in range(3, 256):
        try:
            found += os.fstat(number).st_mode & 0o170000 != 0o140000
        except OSError:
            pass
    return float(found)
"""


def test_an_import_that_only_works_in_a_reading_finds_no_more_there(tmp_path) -> None:
    with a_host(tmp_path) as host:
        found = read(host, plugin(tmp_path, UNWILLING), ["descriptors"])["descriptors"]
    assert (found.value, found.cost.sandbox) == (0.0, "landlock+seccomp"), found


def test_what_an_import_forks_ends_with_the_plugin_s_process(tmp_path) -> None:
    fork = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n    os._exit(0)"
    with a_host(tmp_path) as host:
        before = children()
        assert read(host, plugin(tmp_path, fork), ["instant"])["instant"].value == 1.0
        assert len(children() - before) == 2, "the plugin's process, and what it forked"
    assert children() == before


def test_without_a_sandbox_a_daemon_ends_with_its_reading(tmp_path) -> None:
    with a_host(tmp_path) as host:
        before = children()
        found = read(host, plugin(tmp_path), ["leaves_a_daemon"], Limits(60, 2**29, sandbox=False))
        assert (found["leaves_a_daemon"].value, found["leaves_a_daemon"].cost.sandbox) == (1.0, "none")
        assert len(children() - before) == 1, "the plugin's process alone"


def children() -> set[int]:
    """Processes of this one, however deep."""
    return {one.pid for one in psutil.Process().children(recursive=True)}


def test_a_slow_import_is_not_the_time_of_a_reading_nor_its_memory_that_of_the_worker(tmp_path) -> None:
    little = 2**27
    assert psutil.Process().memory_info().rss > little, "this process holds more than a reading may"
    with a_host(tmp_path) as host:
        found = read(host, plugin(tmp_path, "time.sleep(1.5)"), ["instant"], Limits(1.0, little))
    assert found["instant"].value == 1.0, found


def test_where_the_kernel_has_no_landlock_readings_say_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert "no Landlock" in missing()
    with a_host(tmp_path) as host:
        found = read(host, plugin(tmp_path), ["instant"])["instant"]
    assert (found.value, found.cost.sandbox) == (1.0, "none")


def test_that_readings_are_not_sealed_is_said_once_and_the_doctor_says_what_is_missing(
    monkeypatch, capsys
) -> None:
    execution = Execution(1, "cpu", 1, False, takes_readings=True)
    assert execution.settle()["limits"].sandbox
    assert capsys.readouterr().err == ""
    assert (_sandbox().status, _sandbox().detail[:16]) == ("ok", "landlock+seccomp")
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    execution.settle()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("readings are not sealed: this kernel has no Landlock")
    assert _sandbox().status == "note"
    assert "no Landlock" in _sandbox().detail
    bare = replace(execution, no_sandbox=True)
    assert not bare.settle()["limits"].sandbox
    assert capsys.readouterr().err.startswith("readings are not sealed: --no-sandbox")


def test_both_architectures_have_a_filter_that_the_kernel_could_take() -> None:
    for machine in ("x86_64", "aarch64"):
        for strength in ("reading", "plugin"):
            program = seccomp._program(strength, machine, 4711)
            assert len(program) % 8 == 0
            assert len(program) // 8 < 4096, "the most instructions that the kernel takes"


def test_filters_refuse_by_number_and_argument() -> None:
    """Every program run by hand, as the kernel does, on calls of both architectures."""
    names = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
    read_, socket_, clone, kill, mmap_ = (0, 63), (41, 198), (56, 220), (62, 129), (9, 222)
    for column, machine in enumerate(names):

        def verdict(strength, number, *arguments, machine=machine):
            program = seccomp._program(strength, machine, 4711)
            return judged(program, names[machine], number, arguments)

        assert verdict("reading", read_[column]) == "allow"
        assert verdict("reading", socket_[column]) == "refuse"
        assert verdict("reading", clone[column], 0x3D0F00) == "allow", "a thread"
        assert verdict("reading", clone[column], 17) == "refuse", "a process"
        assert verdict("plugin", clone[column], 17) == "allow"
        assert verdict("plugin", clone[column], 0x10000000) == "refuse", "a namespace"
        assert verdict("reading", kill[column], 4711) == "allow", "itself"
        assert verdict("reading", kill[column], 1) == "refuse"
        assert verdict("reading", mmap_[column], 0, 0, 0, 0x22) == "allow"
        assert verdict("reading", mmap_[column], 0, 0, 0, 0x21) == "refuse"
        assert verdict("reading", 10_000) == "unknown"
        assert judged(seccomp._program("reading", machine, 1), 0x40000003, 0, ()) == "kill"


def judged(program: bytes, architecture: int, number: int, arguments: tuple[int, ...]) -> str:
    """What a filter says of a call: the few instructions of classic BPF that it may use."""
    import struct

    words = {0: number, 4: architecture} | {16 + 8 * place: value for place, value in enumerate(arguments)}
    lines = [struct.unpack_from("HBBI", program, 8 * place) for place in range(len(program) // 8)]
    place, value = 0, 0
    while True:
        code, yes, no, k = lines[place]
        place += 1
        if code == 0x20:
            value = words.get(k, 0)
        elif code == 0x05:
            place += k
        elif code == 0x06:
            return {0x7FFF0000: "allow", 0x80000000: "kill", 0x50001: "refuse", 0x50026: "unknown"}[k]
        else:
            true = {0x15: value == k, 0x25: value > k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            place += yes if true else no

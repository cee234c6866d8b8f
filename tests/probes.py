"""A plugin of attacks: each measure tries one thing that a reading must not be able to do.

A measure that gets through returns 666; one that finds that there is nothing to take returns 0. Where the
kernel refuses, its exception comes through.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from genbench.subject.subject import Inputs, TrainedNetwork

GOT_THROUGH = 666.0
SEALED = "a reading is sealed"

HEAD = """
import ctypes, gc, json, mmap, os, pathlib, resource, signal, socket, struct, subprocess, sys, time
import genbench
import torch

STOLEN = 666.0
PARENT = os.getppid()
HERE = {here!r}
CHANNEL = None

def say(text):
    "To whoever watches, in place of genbench."
    names = {{int(n): 0 for n in range(3, 64)}}
    for number in names:
        try:
            if socket.socket(fileno=os.dup(number)).family == socket.AF_UNIX:
                os.write(number, text.encode() + b"\\n")
        except OSError:
            pass

# patches that are in force from the import on
import genbench.engine.value as _value
import genbench.engine.taking as _taking
_honest = _taking.result_record
def _forged(value):
    if isinstance(value, float) and value == 1234.5:
        return {{"value": float("inf"), "detail": {{}}}}
    if isinstance(value, float) and value == 1234.6:
        return {{"value": 1.0, "detail": {{"layers": {{str(n): 1.0 for n in range(400_000)}}}}}}
    if isinstance(value, float) and value == 1234.7:
        return {{"value": 1.0, "detail": {{"layers": {{"\\x1b[2J": 1.0}}}}}}
    if isinstance(value, float) and value == 1234.8:
        return {{"value": "a rank", "detail": {{}}}}
    if isinstance(value, float) and value == 1234.9:
        return {{"value": 1.0, "rank": 1}}
    return _honest(value)
_taking.result_record = _forged

"""

REFUSED = {
    # files
    "opens_the_pack": "open({packs!r} + '/nin-fashion/pack.json').read(); return STOLEN",
    "opens_a_packed_network": "open({packs!r} + '/nin-fashion/initial-00.safetensors.xz'); return STOLEN",
    "opens_the_store": "open(HERE + '/store/secret').read(); return STOLEN",
    "opens_home": "open({home!r} + '/secret').read(); return STOLEN",
    "opens_passwords": "open('/etc/passwd').read(); return STOLEN",
    "lists_the_root": "os.listdir('/'); return STOLEN",
    "lists_the_workers_folder": "os.listdir('../..'); return STOLEN",
    "reads_held_out_digits": "open({sklearn!r} + '/datasets/data/digits.csv.gz', 'rb'); return STOLEN",
    "reads_held_out_fashion": "open({packs!r} + '/../../data/fashion14/assets/fashion14.xz'); return STOLEN",
    "writes_a_cell": "open(HERE + '/store/secret', 'w').write('666'); return STOLEN",
    "writes_elsewhere": "open('/tmp/genbench-probe', 'w').write('x'); return STOLEN",
    "removes_its_network": (
        "files = [os.path.join(f, n) for f, _, ns in os.walk({given!r}) for n in ns]\n"
        "    os.unlink(files[0] if files else {given!r} + '/part'); return STOLEN"
    ),
    "takes_rights_away": "os.chmod(HERE + '/store', 0); return STOLEN",
    "changes_times": "os.utime(HERE + '/store/secret'); return STOLEN",
    "cuts_a_file": "os.truncate(HERE + '/store/secret', 0); return STOLEN",
    "links_a_file": "os.link(HERE + '/store/secret', 'mine'); return STOLEN",
    "moves_a_file": "os.rename(HERE + '/store/secret', 'mine'); return STOLEN",
    # /proc and other processes
    "reads_the_parents_memory": "open(f'/proc/{PARENT}/mem', 'rb').read(1); return STOLEN",
    "reads_the_parents_environment": "open(f'/proc/{PARENT}/environ').read(); return STOLEN",
    "reads_its_first_environment": "open('/proc/self/environ').read(); return STOLEN",
    "lists_processes": "os.listdir('/proc'); return STOLEN",
    "kills_its_parent": "os.kill(PARENT, signal.SIGKILL); return STOLEN",
    "kills_everybody": "os.kill(-1, signal.SIGKILL); return STOLEN",
    "forks": "os.fork() or os._exit(0); return STOLEN",
    "starts_a_program": "subprocess.run(['/bin/true']); return STOLEN",
    "becomes_a_program": "os.execv(sys.executable, [sys.executable]); return STOLEN",
    "limits_its_parent": "resource.prlimit(PARENT, resource.RLIMIT_NOFILE, (3, 3)); return STOLEN",
    # the network
    "connects": "socket.create_connection((b'127.0.0.1', {port})); return STOLEN",
    "sends_a_datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', (b'127.0.0.1', 9)); return STOLEN",
    "connects_by_a_file": "socket.socket(socket.AF_UNIX).connect(HERE + '/socket'); return STOLEN",
    # memory that nobody counts
    "makes_a_memory_file": "os.memfd_create('x'); return STOLEN",
    "shares_memory": "mmap.mmap(-1, 1 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS); return STOLEN",
    "writes_to_shared_memory": "open('/dev/shm/genbench-probe', 'w').write('x'); return STOLEN",
}  # fmt: skip
"""Name to body, of attacks that the kernel answers with an exception."""

CALLS = {
    "traces_its_parent": (101, 117, "16, PARENT, 0, 0"),
    "reads_memory_across": (310, 270, "PARENT, 0, 0, 0, 0, 0"),
    "asks_for_a_ring": (425, 425, "8, 0"),
    "loads_a_filter_program": (321, 280, "0, 0, 0"),
    "leaves_its_namespace": (272, 97, "0x10000000"),
    "opens_its_parent": (434, 434, "PARENT, 0"),
    "makes_system_v_memory": (29, 194, "0, 4096, 0o1600"),
    "outlives_its_parent": (157, 167, "1, 0, 0, 0, 0"),
}
"""Name to the number of a system call on two architectures, and its arguments."""

NOTHING_TO_TAKE = {
    "reads_the_environment": (
        "return STOLEN if os.environ or ctypes.CDLL(None).getenv(b'GENBENCH_SECRET') else 0.0"
    ),
    "knows_its_network_by_name": "return STOLEN if 'identifying' in subject.name else 0.0",
    "looks_at_descriptors": (
        "kinds = []\n"
        "    for n in range(3, 256):\n"
        "        try: kinds.append(os.fstat(n).st_mode & 0o170000)\n"
        "        except OSError: pass\n"
        "    return STOLEN if len([k for k in kinds if k != 0o140000]) else 0.0"
    ),
    "leaves_a_file": "open('left', 'w').write('x'); return 0.0",
    "finds_a_file": "return STOLEN if os.path.exists('left') or os.listdir('.') else 0.0",
    "reads_its_network_late": "return 0.0 if subject.initial_model is not None else STOLEN",
    "knows_nothing_of_others": "return STOLEN if torch.get_default_dtype() != torch.float32 else 0.0",
}
"""Name to body, of attacks that find nothing."""

STATUSES = {
    "sends_infinity": ("return 1234.5", "invalid", "no finite number"),
    "sends_a_word": ("return 1234.8", "invalid", "no finite number"),
    "sends_a_rank": ("return 1234.9", "invalid", "more than a value"),
    "sends_too_much": ("return 1234.6", "invalid", "400,000 layers"),
    "sends_escape_codes": ("return 1234.7", "invalid", "control characters"),
    "writes_1e999": (
        "say('{\"type\":\"done\",\"piece\":0,\"status\":\"ok\",\"result\":{\"value\":1e999}}'); return 1.0",
        "crashed", "no answer",
    ),
    "writes_garbage": ("say('garbage'); return 1.0", "crashed", "no answer"),
    "raises_escape_codes": ("raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')", "failed", "ValueError"),
    "lifts_its_memory_limit": (
        "soft, hard = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))\n"
        "    kept = torch.ones(2**28)\n    return STOLEN",
        "out_of_memory", "memory",
    ),
    "exits_quietly": ("os._exit(0)", "crashed", "exit code 0"),
}  # fmt: skip
"""Name to body, status and words of the reason."""

PRINTS = "print('\\x1b[2J\\x1b]0;owned\\x07plain'); return 2.0"


def network() -> nn.Module:
    """A small network of convolution, batch norm and linear layers."""
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(8, 3)).eval()


def write_network(folder: Path) -> None:
    """A cell with a network, as it was trained and as its training began, and its training data."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    for name in ("final", "initial"):
        save_file(network().state_dict(), folder / f"{name}.safetensors")
    data = {"inputs": torch.randn(60, 1, 4, 4), "labels": torch.arange(60) % 3}
    save_file(data, folder / "data.safetensors")


def load(name: str, cell: Path) -> TrainedNetwork:
    """That network, read when it is asked for, as in a run."""

    def read(file: str) -> nn.Module:
        made = network()
        made.load_state_dict(load_file(cell / f"{file}.safetensors"))
        return made

    data = load_file(cell / "data.safetensors")
    initial = partial(read, "initial")
    return TrainedNetwork(name, partial(read, "final"), initial, Inputs(data["inputs"]), data["labels"], 3)


def write_probes(file: Path, **places: object) -> list[str]:
    """Write the plugin; the names of its measures."""
    bodies = dict(REFUSED)
    for name, (intel, arm, arguments) in CALLS.items():
        bodies[name] = (
            f"number = {intel} if os.uname().machine == 'x86_64' else {arm}\n"
            "    libc = ctypes.CDLL(None, use_errno=True)\n"
            f"    if libc.syscall(ctypes.c_long(number), {arguments}) < 0:\n"
            "        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
            "    return STOLEN"
        )
    bodies |= NOTHING_TO_TAKE | {name: body for name, (body, _, _) in STATUSES.items()} | {"prints": PRINTS}
    text = HEAD.format(**places)
    for name, body in bodies.items():
        for place, value in places.items():
            body = body.replace("{" + place + "!r}", repr(value)).replace("{" + place + "}", str(value))
        text += f"@genbench.measure\ndef {name}(subject):\n    'An attack.'\n    {body}\n\n"
    file.write_text(text)
    return list(bodies)

"""seccomp, by which a process of Linux gives up system calls, without privileges and for good.

What is refused looks to the caller as if it lacked the permission. Two strengths: that of a reading, and that
of the process that a plugin is imported in, which forks readings and ends them. libseccomp is not everywhere,
and its binding is of no use without it, so the filter is written here: numbers for two architectures.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Literal

__all__ = ["Strength", "available", "forgo", "no_new_privileges", "prepared"]

Strength = Literal["reading", "plugin"]

_Numbers = tuple[int | None, int | None]
"""Of a system call on x86-64 and on arm64."""

_REFUSED: dict[str, _Numbers] = {
    # the network
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendmmsg": (307, 269),
    # other programs, and the memory of other processes
    "execve": (59, 221), "execveat": (322, 281), "vfork": (58, None), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "set_mempolicy_home_node": (450, 450),
    # memory that belongs to no process, and messages between processes
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    # what Landlock does not forbid of files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None), "truncate": (76, 45), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "mknod": (133, None), "mknodat": (259, 33),
    # the machine
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "personality": (135, 92), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "syslog": (103, 116),
    "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
}  # fmt: skip
_REFUSED_TO_READINGS: dict[str, _Numbers] = {"socketpair": (53, 199), "fork": (57, None)}

_NEWEST = 462
"""Numbers above it were given after this was written, or ask for another word size: no such call."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}
"""Machine to its column in the tables, and its name in a filter."""

# Instructions of a filter: load a word of the call, compare it, go on elsewhere, end.
_LOAD, _IS, _ABOVE, _FROM, _HAS, _GO, _END = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL = 0x7FFF_0000, 0x8000_0000
_REFUSE, _UNKNOWN = 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS

_THREAD = 0x1_0000
_OWN_NAMESPACES_OR_PARENT = 0x7E02_0000 | 0x8000
_ANONYMOUS, _SHARED = 0x20, 0x01
_DIE_WITH_PARENT, _MEMORY_MAP = 1, 35

_Instruction = tuple[int, int, int, int]


def _argument(place: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)


def _end(verdict: int) -> _Instruction:
    return (_END, 0, 0, verdict)


def _when_argument(place: int, test: int, value: int, then: int, otherwise: int) -> list[_Instruction]:
    return [_argument(place), (test, 0, 1, value), _end(then), _end(otherwise)]


def _checked(strength: Strength, pid: int) -> dict[_Numbers, list[_Instruction]]:
    """System calls that are refused for some arguments."""
    # The process that the first argument names is this one, which 0 stands for too.
    itself = [_argument(0), (_IS, 1, 0, pid), (_IS, 0, 1, 0), _end(_ALLOW), _end(_REFUSE)]
    always: dict[_Numbers, list[_Instruction]] = {
        (435, 435): [
            _end(_UNKNOWN)
        ],  # clone3, whose flags a filter cannot see; the C library then uses clone
        (302, 261): itself,  # prlimit64
        (203, 122): itself,  # sched_setaffinity
    }
    if strength == "plugin":
        return {**always, (56, 220): _when_argument(0, _HAS, _OWN_NAMESPACES_OR_PARENT, _REFUSE, _ALLOW)}
    return {
        **always,
        (56, 220): _when_argument(0, _HAS, _THREAD, _ALLOW, _REFUSE),  # clone
        (62, 129): _when_argument(0, _IS, pid, _ALLOW, _REFUSE),  # kill
        (234, 131): _when_argument(0, _IS, pid, _ALLOW, _REFUSE),  # tgkill
        (157, 167): [  # prctl
            _argument(0), (_IS, 1, 0, _DIE_WITH_PARENT), (_IS, 0, 1, _MEMORY_MAP), _end(_REFUSE),
            _end(_ALLOW),
        ],
        # mmap: what two processes could share counts as neither's memory
        (9, 222): [
            _argument(3), (_HAS, 0, 2, _ANONYMOUS), (_HAS, 0, 1, _SHARED), _end(_REFUSE), _end(_ALLOW),
        ],
    }  # fmt: skip


def _program(strength: Strength, machine: str, pid: int) -> bytes:
    column, name = _ARCHITECTURES[machine]
    refused = {**_REFUSED, **(_REFUSED_TO_READINGS if strength == "reading" else {})}
    instructions: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_IS, 1, 0, name), _end(_KILL),
        (_LOAD, 0, 0, _NUMBER), (_ABOVE, 0, 1, _NEWEST), _end(_UNKNOWN),
    ]  # fmt: skip
    blocks = {numbers: [_end(_REFUSE)] for numbers in refused.values()} | _checked(strength, pid)
    known = [
        (numbers[column] or 0, block) for numbers, block in blocks.items() if numbers[column] is not None
    ]
    instructions += _searched(sorted(known, key=itemgetter(0)))
    return b"".join(struct.pack("HBBI", *one) for one in instructions)


def _searched(calls: Sequence[tuple[int, list[_Instruction]]]) -> list[_Instruction]:
    """What becomes of each of `calls`, all others allowed; by halves.

    The kernel runs a new filter once for every number there is: one after another would take a millisecond.
    """
    if len(calls) == 1:
        ((number, block),) = calls
        return [(_IS, 0, len(block), number), *block, _end(_ALLOW)]
    middle = len(calls) // 2
    below, above = _searched(calls[:middle]), _searched(calls[middle:])
    return [(_FROM, 1, 0, calls[middle][0]), (_GO, 0, 0, len(above)), *above, *below]


_ANY_PID = 0x0_5EA1ED
"""Stands for the number of the process in a program made beforehand."""


@cache
def prepared(strength: Strength) -> tuple[Sequence[bytes], int]:
    """The program without the number of the process, which goes between the pieces; and who takes it."""
    mark, machine = struct.pack("I", _ANY_PID), platform.machine()
    return _program(strength, machine, _ANY_PID).split(mark), _SECCOMP[machine]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None
_SET_NO_NEW_PRIVILEGES, _GET_SECCOMP = 38, 21
_SET_FILTER, _ALL_THREADS = 1, 1
_SECCOMP = {"x86_64": 317, "aarch64": 277, "arm64": 277}


def available() -> bool:
    """Whether this kernel and this architecture have it."""
    if _LIBC is None or platform.machine() not in _ARCHITECTURES or sys.byteorder != "little":
        return False
    return bool(_LIBC.prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0)


def no_new_privileges() -> None:
    """Promise the kernel that no program started from here gains rights; what all else here asks for."""
    assert _LIBC is not None
    if _LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "new privileges cannot be given up")


def forgo(strength: Strength) -> None:
    """Give up what this strength refuses, for this process and all that come of it."""
    assert _LIBC is not None
    pieces, number = prepared(strength)
    code = struct.pack("I", os.getpid()).join(pieces)
    program = _Program(len(code) // 8, code)
    done = _LIBC.syscall(number, _SET_FILTER, _ALL_THREADS, ctypes.byref(program))
    if done:
        raise OSError(ctypes.get_errno(), "system calls cannot be given up")

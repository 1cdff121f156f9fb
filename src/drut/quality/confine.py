"""A script for a process of its own: bounds that process as far as Linux lets it, then becomes a program.

    python -I -S -B confine.py REPORT_FD CPU_S WALL_S MEMORY_BYTES FILE_BYTES PROGRAM

First it writes one line to REPORT_FD: the names of what it could not bound, with commas between; or `!` and why nothing
can run. What a process may not undo is done here, before any of the program's own code runs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress

# From linux/sched.h, mount.h and prctl.h; the system call's number is the same on all machines but Alpha.
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, SYS_MOUNT_SETATTR = -100, 0x8000, 1, 442
PR_SET_PDEATHSIG = 1
NOBODY = 65534
OPEN_FILES = 64
ENDS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM}


def main(arguments: list[str]) -> None:
    """Does not return."""
    report, cpu_s, wall_s, memory, file_bytes = map(int, arguments[:-1])
    try:
        lacking = _separate()
        if not lacking:
            _fork(report, wall_s)
        else:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        lacking += _limit(cpu_s, memory, file_bytes)
    except OSError as error:
        os.write(report, f"!{error}\n".encode())
        os._exit(1)
    os.write(report, (",".join(lacking) + "\n").encode())
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", arguments[-1]])


def _separate() -> list[str]:
    """No network, no other process to signal, no file system to write, no rights. Names of what fails.

    Root stays the effective user, without rights, for its Python may be readable by root alone; but the kernel limits
    the processes of the real user, and never those of root. Outside a namespace root becomes nobody.
    """
    root = os.geteuid() == 0
    if root:
        with suppress(OSError):  # in a namespace with no other user; whether processes are bounded is tried below
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC) == 0:
        read_only = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY)
        if libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, read_only, ctypes.c_size_t(32)) == 0:
            return []
        raise OSError(ctypes.get_errno(), "the file system cannot be made read-only (Linux 5.12 or newer)")
    if root:
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError:
            raise OSError("Linux grants no namespaces, and root cannot become another user") from None
    return ["network", "signals", "files"]


def _fork(report: int, wall_s: int) -> None:
    """Returns in the child, the first process of its namespace: with it all others there end.

    The parent is out of the program's reach, and ends it after `wall_s` or on SIGTERM, even where nobody asks any more.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    child = os.fork()
    if child:
        os.close(report)
        signal.alarm(wall_s)
        signal.sigwait(ENDS)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os._exit(0)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def _limit(cpu_s: int, memory: int, file_bytes: int) -> list[str]:
    """Hard limits, which only rights outside the namespace could raise. Names of what fails."""
    for name, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, file_bytes),
                       (resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 1)):
        resource.setrlimit(name, (most, most))
    try:
        child = os.fork()
    except OSError:
        return []
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return ["processes"]


if __name__ == "__main__":
    main(sys.argv[1:])

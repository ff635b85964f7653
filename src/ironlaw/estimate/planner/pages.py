"""Pages of memory that a search frees and takes again."""

from __future__ import annotations

from functools import cache

_RETAINED = 1 << 28  # bytes


@cache
def keep_pages() -> None:
    """Make glibc's allocator keep freed pages; does nothing with other C libraries.

    A search allocates and frees arrays of half a megabyte a hundred thousand times. Without this the kernel clears their pages each
    time, which takes as long as filling them.
    """
    import ctypes  # costs start-up

    try:
        allocator = ctypes.CDLL(None)
        for setting in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            allocator.mallopt(setting, _RETAINED)
    except (OSError, AttributeError):
        pass

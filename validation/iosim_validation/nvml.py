"""Clock and power of the card, read from the driver's own library; nothing here changes a setting."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from iosim_validation.gpu import Samples

SM_CLOCK = 1  # nvmlClockType_t
POWER_INSTANT = 186  # nvmlFieldId: board power now, in milliwatts; the plain call averages over a second
EVERY_S = 0.01


class _Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class Nvml:
    """One card, by its PCI address. Where the library or a reading is missing, answers are None."""

    def __init__(self, pci_address: str) -> None:
        self._library: Any = None
        self._card = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        found = library.nvmlDeviceGetHandleByPciBusId_v2
        if not library.nvmlInit_v2() and not found(pci_address.encode(), ctypes.byref(self._card)):
            self._library = library

    def sm_clock_hz(self) -> float | None:
        """Of the SMs, now."""
        mhz = self._number("nvmlDeviceGetClockInfo", SM_CLOCK)
        return None if mhz is None else mhz * 1e6

    def highest_sm_clock_hz(self) -> float | None:
        """The most that the card may take."""
        mhz = self._number("nvmlDeviceGetMaxClockInfo", SM_CLOCK)
        return None if mhz is None else mhz * 1e6

    def power_w(self) -> float | None:
        """Of the board, now."""
        if self._library is None:
            return None
        field = _Field(id=POWER_INSTANT)
        asked = self._library.nvmlDeviceGetFieldValues(self._card, 1, ctypes.byref(field))
        if not asked and not field.status:
            return float(field.value & 0xFFFFFFFF) / 1e3
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1e3

    def power_limit_w(self) -> float | None:
        """What the card is held to."""
        milliwatts = self._number("nvmlDeviceGetEnforcedPowerLimit")
        return None if milliwatts is None else milliwatts / 1e3

    def driver(self) -> str | None:
        """The driver's version."""
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, len(text)):
            return None
        return str(text.value.decode(errors="replace"))

    @contextmanager
    def watch(self) -> Iterator[Samples]:
        """Sample from a thread of its own until the end of the block."""
        samples, done = Samples(), threading.Event()

        def read() -> None:
            while not done.wait(EVERY_S):
                clock, power = self.sm_clock_hz(), self.power_w()
                now = time.monotonic()
                if clock is not None:
                    samples.sm_clock_hz.append((now, clock))
                if power is not None:
                    samples.power_w.append((now, power))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield samples
        finally:
            done.set()
            reader.join()

    def _number(self, function: str, *kind: int) -> float | None:
        if self._library is None:
            return None
        value = ctypes.c_uint()
        failed = getattr(self._library, function)(self._card, *kind, ctypes.byref(value))
        return None if failed else float(value.value)

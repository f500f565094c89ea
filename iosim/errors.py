"""The exception tree.

IosimError                     every error that iosim raises on purpose
├── UsageError                 the caller asked for something that cannot be; the command exits with 2
│   ├── ProblemError           an impossible attention: sizes, heads, dtypes, masks
│   ├── ProfileError           a hardware profile with unknown, missing or unit-less entries
│   ├── ProgramError           a tile program that breaks the grammar (also in a user's own file)
│   │   ├── UnknownOp          an operation without a rule: nothing ever counts as zero by default
│   │   └── VerificationError  reads before a definition, leaves a tensor, stores a row twice
│   ├── TileError              no tile, or not this tile, fits in the on-chip memory
│   └── SimulationError        a cache, an access or a kernel that cannot be simulated
└── RunError                   something failed while running (disk, interrupt); the command exits with 1
    ├── DeviceError            no GPU, or nothing to drive it with; the command exits with 3
    └── InterruptedRun         stopped by Ctrl-C with its work kept; the command exits with 130

Messages are one line: what is wrong, where, what is allowed, what to do.
"""


class IosimError(Exception):
    """Base of every error raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(IosimError):
    """The request itself is at fault."""

    exit_code = 2


class ProblemError(UsageError):
    """An attention problem that cannot exist."""


class ProfileError(UsageError):
    """A hardware profile that cannot be used."""


class ProgramError(UsageError):
    """A tile program that breaks the grammar."""


class UnknownOp(ProgramError):  # noqa: N818 - the name the documentation uses
    """An operation that has no rule in the table of operations."""


class VerificationError(ProgramError):
    """A tile program that computes from, or leaves behind, the wrong memory."""


class TileError(UsageError):
    """A tile that does not fit on chip, or a search that finds none."""


class SimulationError(UsageError):
    """A cache, an access or a kernel that cannot be simulated: not aligned, not resident, no such policy."""


class RunError(IosimError):
    """A failure while running: the disk, the machine, an interrupt."""


class DeviceError(RunError):
    """No GPU here, or the packages that drive one are not installed."""

    exit_code = 3


class InterruptedRun(RunError):  # noqa: N818 - an interrupt is no error of ours
    """Stopped by the user; the message says what is kept."""

    exit_code = 130

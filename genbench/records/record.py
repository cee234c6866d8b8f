"""The format of a result record, as types; reading, the JSON schema and its limits all follow from them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from genbench.engine.cells import Status
from genbench.packs.record_types import Count, RecordPart, Seconds, Sha256, Text

__all__ = [
    "MEASURE_NAME",
    "SCHEMA",
    "SUITE_NAME",
    "Plugin",
    "Provenance",
    "Reading",
    "Record",
    "RecordedCost",
]

SCHEMA: Final = 3
"""Version of the format; a record of another version is refused."""

MEASURE_NAME = "^[a-z_][a-z0-9_]{0,79}$"
SUITE_NAME = "^[a-z0-9]+([._-][a-z0-9]+)*$"
"""Both name files: no slash, no leading dot, no two dots in a row."""


DEVICE = "^(cpu|mps|cuda .+)$"


class About(RecordPart, frozen=True):
    """What the measure says of itself."""

    name: Annotated[str, Meta(pattern=MEASURE_NAME)]
    version: Text
    category: Text
    summary: Annotated[str, Meta(max_length=500)]
    description: Annotated[str, Meta(max_length=20_000, description="Formula and limits.")]
    paper: Text
    higher_means: Literal["worse", "better"]
    logarithm: bool
    randomness: Literal["none", "seeded"]
    needs: Annotated[list[Text], Meta(description="What it takes from a network.", max_length=100)]


class Plugin(RecordPart, frozen=True):
    """Who offers the measure."""

    kind: Literal["built-in", "package", "file"]
    name: Text
    distribution: Text
    version: Text
    sha256: Annotated[Sha256, Meta(description="Of the source code.")]


class Platform(RecordPart, frozen=True):
    """The machine."""

    system: Text
    machine: Text
    libc: Text
    python: Text
    processor: Annotated[Text, Meta(description="Its maker's name for it, where known.")] = ""


class Seeds(RecordPart, frozen=True):
    """Readings have their own."""

    bootstrap: Count


class Git(RecordPart, frozen=True):
    """Of the genbench checkout; null for an installed package."""

    commit: Annotated[str, Meta(pattern="^[0-9a-f]{40,64}$")]
    dirty: bool


class Provenance(RecordPart, frozen=True):
    """What the readings were made from."""

    genbench: Text
    suite_sha256: Annotated[Sha256, Meta(description="Of the suite's TOML file.")]
    evidence: Annotated[Text | None, Meta(description="Name and version of the evidence pack.")]
    data_sha256: Annotated[Sha256 | None, Meta(description="Of the images.")]
    networks: Annotated[
        dict[str, Sha256],
        Meta(description="Network, or stack of networks, to sha256 of its weights.", max_length=5000),
    ]
    packages: Annotated[dict[str, Text], Meta(description="Package to version.", max_length=5000)]
    platform: Platform
    seeds: Seeds
    git: Git | None
    command: Annotated[str, Meta(max_length=1000)]


class Reading(RecordPart, frozen=True, kw_only=True, omit_defaults=True):
    """The measure on one network. What most readings have goes without saying: a board has 100,000."""

    subject: Text
    status: Status = Status.OK
    reason: Annotated[str, Meta(max_length=10_000)] = ""
    value: float | None = None
    detail: Annotated[dict[str, Any], Meta(description="Standard error, samples, layers.")] = field(
        default_factory=dict
    )
    seconds: Annotated[Seconds, Meta(description="The measure's own time.")]
    shared_seconds: Annotated[Seconds, Meta(description="Time of the shared parts it used.")]
    peak_bytes: Count
    device: Annotated[
        str, Meta(pattern=DEVICE, max_length=200, description="Its type and, of a GPU, its name.")
    ] = "cpu"
    threads: Annotated[int, Meta(ge=1, le=4096, description="Of torch.")] = 1
    sandbox: Annotated[
        Literal["none", "landlock+seccomp"],
        Meta(description="What kept the measure from all but its network."),
    ] = "landlock+seccomp"


class RecordedCost(RecordPart, frozen=True):
    """Of all readings: sums of seconds, the largest memory."""

    seconds: Seconds
    shared_seconds: Seconds
    peak_bytes: Count


class Record(RecordPart, frozen=True):
    """The readings and scores of one measure on one suite. Lies in records/<suite>/<measure>.json."""

    schema: Annotated[Literal[3], Meta(description="Version of this format.")]
    suite: Annotated[str, Meta(pattern=SUITE_NAME, description="Name of the suite.")]
    evidence: Annotated[
        Sha256 | None,
        Meta(description="sha256 of the evidence pack's manifest; null if there was no pack."),
    ]
    subject_version: Annotated[Count, Meta(description="Code version of genbench.subject.")]
    measure: Annotated[About, Meta(description="What the measure says of itself.")]
    plugin: Annotated[Plugin, Meta(description="Who offers the measure.")]
    provenance: Annotated[Provenance, Meta(description="What the readings were made from.")]
    readings: Annotated[
        list[Reading],
        Meta(description="One per network of the suite, in its order.", max_length=100_000),
    ]
    keys: Annotated[
        Sha256, Meta(description="Hash of the keys of all readings, each of all that determines one.")
    ]
    statuses: Annotated[dict[str, Count], Meta(description="Status to number of readings.", max_length=5000)]
    cost: Annotated[RecordedCost, Meta(description="Of all readings: sums of seconds, the largest memory.")]
    sign_error: Annotated[
        dict[str, Any] | None, Meta(description="Scores, as the kind of the suite has them.")
    ]
    sha256: Annotated[Sha256, Meta(description="sha256 of everything else: sorted keys, no spaces, UTF-8.")]

    @property
    def name(self) -> str:
        """Of the measure."""
        return self.measure.name

    @property
    def sealed(self) -> bool:
        """Whether every reading was taken in a sandbox."""
        return all(reading.sandbox != "none" for reading in self.readings)

"""The papers that measures and scores come from, for links and BibTeX."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAPERS", "Paper", "paper_of"]


@dataclass(frozen=True)
class Paper:
    """One paper on arXiv."""

    key: str
    authors: str
    """As BibTeX has them."""
    short: str
    """As a sentence has them."""
    title: str
    arxiv: str
    year: int

    @property
    def link(self) -> str:
        """Where it can be read."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def citation(self) -> str:
        """As a line of text has it."""
        return f"{self.short}: {self.title}, arXiv:{self.arxiv}"

    def bibtex(self) -> str:
        """One entry."""
        return (
            f"@misc{{{self.key},\n  author = {{{self.authors}}},\n  title = {{{{{self.title}}}}},\n"
            f"  year = {{{self.year}}},\n  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}}\n}}\n"
        )


PAPERS = {
    "000": Paper(
        "zhang2025fragile", "Zhang and Louis", "Zhang, Louis",
        "Many generalization measures for deep learning are fragile", "2510.18934", 2025,
    ),
    "001": Paper(
        "dziugaite2020robust", "Dziugaite and others", "Dziugaite et al.",
        "In search of robust measures of generalization", "2010.11924", 2020,
    ),
    "002": Paper(
        "nakai2026revisiting", "Nakai and others", "Nakai et al.",
        "Revisiting generalization measures beyond IID", "2602.01718", 2026,
    ),
    "003": Paper(
        "schiff2021predicting", "Schiff and others", "Schiff et al.",
        "Predicting deep neural network generalization with perturbation response curves", "2106.04765", 2021,
    ),
    "004": Paper(
        "huang2024practical", "Huang and Yu and Zhang", "Huang, Yu, Zhang",
        "A practical generalization metric for deep networks benchmarking", "2409.01498", 2024,
    ),
}  # fmt: skip
"""By the number that measures name them with: "001 (27)" is equation 27 of 001."""


def paper_of(reference: str) -> tuple[Paper | None, str]:
    """The paper that a measure's `paper` names, and the place in it; None if it is not one of the five."""
    number, _, place = reference.partition(" ")
    if number not in PAPERS:
        return None, reference
    place = place.strip("()")
    return PAPERS[number], f"Eq. {place}" if place.isdigit() else place

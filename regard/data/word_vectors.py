"""Word vectors learnt elsewhere, in word2vec's text form (Mikolov et al. 2013): a word and its numbers a line.

The first line may tell how many words there are and how long a vector is; GloVe's files have no such line. Files are
plain or gzip.
"""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.data.lines import BadRow, Lines
from regard.data.parallel_text import file_suffixes

NUMBER = re.compile(r"-?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)


def read_word_vectors(file: str | Path, wanted: set[str]) -> dict[str, npt.NDArray[np.float32]]:
    """The vectors of the wanted words; only these are held. Of two vectors for a word, the first counts."""
    file_suffixes([file])
    found: dict[str, npt.NDArray[np.float32]] = {}
    dim = 0
    for number, line in enumerate(Lines(file), 1):
        if isinstance(line, BadRow):  # a word cut in the middle of a letter: nobody can want it
            continue
        line = line.rstrip(" ")
        blanks = line.count(" ")
        if number == 1 and blanks == 1 and line.replace(" ", "").isdecimal():
            dim = int(line.split(" ")[1])
            continue
        dim = dim or blanks
        word = line.partition(" ")[0] if blanks == dim else line.rsplit(" ", dim)[0]
        # GloVe has words with blanks in them, such as ". . ."; if such a word ends in a number, a vector is too long.
        if not dim or blanks < dim or (blanks > dim and NUMBER.fullmatch(word.rpartition(" ")[2])):
            raise ValueError(f"{file}:{number}: a word and {dim or 'its'} numbers are needed, but there are {blanks}")
        if word in wanted and word not in found:
            found[word] = vector(line[len(word) + 1 :], f"{file}:{number}")
    return found


def vector(numbers: str, where: str) -> npt.NDArray[np.float32]:
    try:
        values = np.array(numbers.split(" "), np.float64)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if not (np.abs(values) < np.finfo(np.float32).max).all():  # so turned that NaN is refused
        raise ValueError(f"{where}: the vector holds a number that is not finite")
    return values.astype(np.float32)

"""Pre-trained word vectors in the text format of word2vec (Mikolov et al. 2013): a word and its numbers per line.

The first line may hold the number of words and the dimension; files of GloVe have no such line. Plain or gzip.
"""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.data.fields import file_suffixes
from regard.data.lines import BadRow, Lines

NUMBER = re.compile(r"-?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)


def read_word_vectors(file: str | Path, words: set[str]) -> dict[str, npt.NDArray[np.float32]]:
    """The vectors of `words`; all others are skipped. The first vector of a word counts."""
    file_suffixes([file])
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    dim = 0
    for number, line in enumerate(Lines(file), 1):
        if isinstance(line, BadRow):  # a word truncated inside a character matches no word
            continue
        line = line.rstrip(" ")
        blanks = line.count(" ")
        if number == 1 and blanks == 1 and line.replace(" ", "").isdecimal():
            dim = int(line.split(" ")[1])
            continue
        dim = dim or blanks
        word = line.partition(" ")[0] if blanks == dim else line.rsplit(" ", dim)[0]
        # GloVe has words with blanks, such as ". . ."; a word that ends in a number is a vector of wrong length.
        if not dim or blanks < dim or (blanks > dim and NUMBER.fullmatch(word.rpartition(" ")[2])):
            raise ValueError(f"{file}:{number}: expected a word and {dim or 'its'} numbers, but there are {blanks}")
        if word in words and word not in vectors:
            vectors[word] = parse_vector(line[len(word) + 1 :], f"{file}:{number}")
    return vectors


def parse_vector(numbers: str, where: str) -> npt.NDArray[np.float32]:
    try:
        values = np.array(numbers.split(" "), np.float64)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if not (np.abs(values) < np.finfo(np.float32).max).all():  # written so that NaN is refused
        raise ValueError(f"{where}: the vector contains a number that is not finite")
    return values.astype(np.float32)

"""Sentence splitting, so that a long text can be translated sentence by sentence.

In doubt the text is not split: two sentences in one part do less harm than half a sentence. The parts concatenate to
the text.
"""

import re

WORD = re.compile(r"[^\s。！？]++\s*+|[。！？]++[」』）”’]*+\s*+|\s++")
OPENING, CLOSING = "\"'“”„‚‘’«»‹›([{¿¡—–-*", "\"'“”‘’«»‹›)]}*"

BEFORE_NAMES = re.compile(
    r"mr|mrs|ms|dr|prof|st|gen|col|capt|sgt|lt|rev|gov|sen|pres|hr|fr|frl|dipl|univ|mme|mlle|mgr|sr|sra|srta|dña|uds?"
    r"|sig|dott|avv|dhr|mevr|mw|vs|cf|approx|ca|bzw|vgl|evtl|ggf|inkl|exkl|zzgl|sog|insb|bijv|np|resp|hrsg|inc|ltd|co",
    re.IGNORECASE,
)
BEFORE_NUMBERS = re.compile(
    r"nos?|nrn?|núm|vol|ch|sec|figs?|eq|abb|abs|art|kap|tab|bd|pp|ziff|tel|\w*str"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|o[ck]t|nov|de[cz]",
    re.IGNORECASE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences, each with the white space after it."""
    words = WORD.findall(text)
    sentences, start = [], 0
    for i, (word, after) in enumerate(zip(words, words[1:], strict=False), 1):
        if is_sentence_end(word, after):
            sentences.append("".join(words[start:i]))
            start = i
    return [*sentences, "".join(words[start:])] if words else []


def is_sentence_end(word: str, after: str) -> bool:
    """Whether `word` is the last of its sentence. Both words include the white space after them."""
    bare = word.rstrip()
    if word.count("\n") > 1 and bare or bare[:1] in tuple("。！？"):
        return True
    core = bare.rstrip(CLOSING)
    follower = after.rstrip().lstrip(OPENING)
    if bare == word or not core.endswith((".", "!", "?", "…")) or not follower or follower[0].islower():
        return False
    return not core.endswith(".") or core.endswith("..") or not is_abbreviation(core[:-1].lstrip(OPENING), follower)


def is_abbreviation(stem: str, follower: str) -> bool:
    """Whether the full stop belongs to `stem`: Dr. Who, J. Bach, z. B., the U.S. Army, No. 5, am 3. Oktober."""
    if BEFORE_NAMES.fullmatch(stem) or follower[0].isdigit() and BEFORE_NUMBERS.fullmatch(stem):
        return True
    if stem.isdigit():
        return len(stem) < 3
    letters = stem.split(".")
    return (len(letters) > 1 or len(stem) == 1) and all(part.isalpha() and len(part) < 3 for part in letters)

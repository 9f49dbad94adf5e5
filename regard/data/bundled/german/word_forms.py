"""What a word of the phrasebook is: its forms in English and in German, and how an entry of the lexicon is read.

An entry gives the English with its irregular forms, then the German with the forms that no rule gives.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

Word = tuple[str, str]  # as it is written, its universal part of speech
Words = tuple[Word, ...]
Pair = tuple[Words, Words]  # English, German
Forms = tuple[str, str, str, str]  # of a verb: I, you, she, they; ich, du, sie, wir

TRAITS = {
    "simple",  # has no "is knowing"
    "present",  # has no past here
    "unwilled",  # nobody wants to, has to, may
    "please",  # can be asked for
}


class Noun(NamedTuple):
    english: str
    english_plural: str
    german: str
    gender: str  # m, f or n
    german_plural: str  # empty: not counted here
    oblique: str  # accusative and dative: "der Junge", but "den Jungen"
    group: str

    def form(self, case: str, plural: bool) -> str:
        if not plural:
            return self.german if case == "nom" else self.oblique
        return self.german_plural + ("n" if case == "dat" and self.german_plural[-1] not in "ns" else "")


class Adjective(NamedTuple):
    english: str
    german: str
    stem: str  # takes the endings: "teuer", but "ein teures Auto"
    english_more: Words  # "older", "more expensive"; empty where nobody compares
    german_more: str


class Determiner(NamedTuple):
    english: str
    english_plural: str
    german: str  # without its ending
    pattern: str  # der, dieser, ein, viele or none: which endings it shows
    tag: str

    @property
    def definite(self) -> bool:
        return self.pattern in ("der", "dieser", "ein") and self.german not in ("ein", "kein")


class Complement(NamedTuple):
    role: str  # accusative, dative or prepositional; place, goal, spot, onto, vehicle or manner
    groups: tuple[str, ...]  # of words that make sense here
    case: str
    english: str  # preposition
    german: str
    optional: bool


class Verb(NamedTuple):
    english: Forms
    past: Forms
    participle: str
    ing: str
    particle: str  # "on" of "turn on"
    german: Forms
    preterite: Forms | None  # where German says "war", not "ist gewesen"
    prefix: str  # "an" of "ruft an"
    infinitive: str
    perfect: str
    moves: bool  # its perfect takes "sein"
    complements: tuple[Complement, ...]
    subjects: tuple[str, ...]  # groups of nouns
    traits: frozenset[str]  # of TRAITS; "auxiliary" if it needs no "do"


class Modal(NamedTuple):
    english: Forms
    tail: Words  # what follows: "to"
    auxiliary: bool  # "can he?" but "does he want to?"
    german: Forms


class Fixed(NamedTuple):
    """A pronoun or a name: a noun phrase whose forms are listed."""

    forms: Mapping[str, Pair]  # by case
    agreement: int  # which of a verb's Forms goes with it
    weight: str  # pronoun or definite
    pronoun: str  # what refers back to it: "he"

    def english(self, case: str) -> Words:
        return self.forms[case][0]

    def german(self, case: str) -> Words:
        return self.forms[case][1]


def with_s(word: str) -> str:
    """The plural of a noun, the third person of a verb."""
    return word + "es" if re.search("(s|x|z|ch|sh|go)$", word) else re.sub("(?<=[^aeiou])y$", "ie", word) + "s"


def with_ed(verb: str) -> str:
    return verb + "d" if verb.endswith("e") else re.sub("(?<=[^aeiou])y$", "i", verb) + "ed"


def with_ing(verb: str) -> str:
    doubled = verb + verb[-1] if re.fullmatch("(for)?[^aeiou]*[aeiou][bdgmnprt]", verb) else verb
    return re.sub("(?<=[^e])e$", "", re.sub("ie$", "y", doubled)) + "ing"


def german_present(infinitive: str, third: str) -> Forms:
    """From `lesen` and `liest`; a verb that follows no rule lists ich, du and sie: `mag/magst/mag`."""
    if "/" in third:
        ich, du, sie = third.split("/")
        return ich, du, sie, infinitive
    return infinitive.removesuffix("n"), third[:-1] + ("t" if third[-2] in "sßz" else "st"), third, infinitive


def tagged(text: str) -> Words:
    """Words from "every/DET day/NOUN"."""
    return tuple((word, tag) for word, _, tag in (pair.partition("/") for pair in text.split()))


def pairs(table: str) -> tuple[Pair, ...]:
    """Both languages from "now/ADV = jetzt/ADV, today/NOUN = heute/ADV"."""
    return tuple(
        (tagged(english), tagged(german)) for english, _, german in (e.partition("=") for e in table.split(","))
    )


def by_english(table: str) -> dict[str, Pair]:
    return {english[0][0]: (english, german) for english, german in pairs(table)}


def noun(entry: str, group: str) -> Noun:
    """From `boy der Junge/Jungen/Jungen`: after the plural stands the oblique form, where there is one."""
    english, article, german = entry.split()
    one, _, many = english.partition("/")
    singular, plural, oblique = [*german.split("/"), "", ""][:3]
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    return Noun(one, many or with_s(one), singular, gender, plural, oblique or singular, group)


def adjectives(table: str) -> dict[str, Adjective]:
    """From `expensive/more teuer/teurer/teur, …`: after the comparative stands the stem, where it is not the word."""
    found = {}
    for english, german in (entry.split() for entry in table.split(",")):
        word, _, more = english.partition("/")
        plain, german_more, stem = [*german.split("/"), "", ""][:3]
        english_more = (("more", "ADV"), (word, "ADJ")) if more == "more" else ((more, "ADJ"),)
        found[word] = Adjective(word, plain, stem or plain, english_more if more else (), german_more)
    return found


def pronoun(entry: str, agreement: int, tag: str = "PRON", weight: str = "pronoun") -> Fixed:
    """From `he him er ihn ihm`: English subject and object, German nominative, accusative and dative."""
    subject, other, *german = entry.split()
    english = (subject, other, other)
    forms = {
        case: (((e, tag),), ((g, tag),)) for case, e, g in zip(("nom", "acc", "dat"), english, german, strict=True)
    }
    return Fixed(forms, agreement, weight, subject)


def complement(text: str) -> Complement:
    """From `dat friends`, `for/auf acc friends` with both prepositions, or `?place rooms` that may be left out."""
    first, *groups = text.removeprefix("?").split()
    english, slash, german = first.partition("/")
    case = groups.pop(0) if slash else first
    role = "prepositional" if german else {"acc": "accusative", "dat": "dative"}.get(case, case)
    return Complement(role, tuple(groups), case, english if slash else "", german, text.startswith("?"))


def verb(entry: str, sets: Mapping[str, str]) -> Verb:
    """From `call : an|rufen ruft angerufen : acc person, please`, where a set stands for several groups of nouns."""
    left, middle, right = (part.strip() for part in entry.split(":"))
    (english, _, particle), (whole, third, *perfect) = left.partition(" "), middle.split()
    base, past, participle = english.split("/") if "/" in english else (english, with_ed(english), with_ed(english))
    prefix, _, stem = whole.rpartition("|")
    details = [" ".join(sets.get(word, word) for word in text.split()) for text in right.split(",")]
    traits = frozenset(details) & TRAITS
    subjects = next((text for text in details if text.startswith("by ")), "by " + sets["person"])
    return Verb(
        english=(base, base, with_s(base), base),
        past=(past, past, past, past),
        participle=participle,
        ing=with_ing(base),
        particle=particle,
        german=german_present(stem, third),
        preterite=None,
        prefix=prefix,
        infinitive=prefix + stem,
        perfect=perfect[-1],
        moves=perfect[0] == "ist",
        complements=tuple(complement(text) for text in details if text not in traits | {subjects}),
        subjects=tuple(subjects.split()[1:]),
        traits=traits,
    )

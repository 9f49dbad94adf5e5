"""The word classes of the phrasebook with their inflected forms, and the parsers of lexicon entries.

An entry has the English word with its irregular forms, then the German word with the forms that no rule gives.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

Word = tuple[str, str]  # spelling, universal part-of-speech tag
Words = tuple[Word, ...]
Pair = tuple[Words, Words]  # English, German
Forms = tuple[str, str, str, str]  # of a verb: I, you, she, they; ich, du, sie, wir

TRAITS = {
    "simple",  # has no progressive form
    "present",  # is used in the present only
    "unwilled",  # takes no modal verb
    "please",  # can be requested
}


class Noun(NamedTuple):
    english: str
    english_plural: str
    german: str
    gender: str  # m, f or n
    german_plural: str  # empty: uncountable
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
    english_more: Words  # "older", "more expensive"; empty if not comparable
    german_more: str


class Determiner(NamedTuple):
    english: str
    english_plural: str
    german: str  # without its ending
    pattern: str  # der, dieser, ein, viele or none: its endings
    tag: str

    @property
    def definite(self) -> bool:
        return self.pattern in ("der", "dieser", "ein") and self.german not in ("ein", "kein")


class Complement(NamedTuple):
    role: str  # accusative, dative or prepositional; place, goal, spot, onto, vehicle or manner
    groups: tuple[str, ...]  # of nouns that make sense
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
    preterite: Forms | None  # if German prefers "war" to "ist gewesen"
    prefix: str  # "an" of "ruft an"
    infinitive: str
    perfect: str
    uses_sein: bool  # its perfect takes "sein"
    complements: tuple[Complement, ...]
    subjects: tuple[str, ...]  # groups of nouns
    traits: frozenset[str]  # of TRAITS; "auxiliary" if it takes no "do"


class Modal(NamedTuple):
    english: Forms
    tail: Words  # "to"
    auxiliary: bool  # "can he?" but "does he want to?"
    german: Forms


class Fixed(NamedTuple):
    """A pronoun or a name: a noun phrase with listed forms."""

    forms: Mapping[str, Pair]  # by case
    agreement: int  # index of the verb's Forms
    weight: str  # pronoun or definite
    pronoun: str  # that refers to it: "he"

    def english(self, case: str) -> Words:
        return self.forms[case][0]

    def german(self, case: str) -> Words:
        return self.forms[case][1]


def add_s(word: str) -> str:
    """The plural of a noun, or the third person of a verb."""
    return word + "es" if re.search("(s|x|z|ch|sh|go)$", word) else re.sub("(?<=[^aeiou])y$", "ie", word) + "s"


def add_ed(verb: str) -> str:
    return verb + "d" if verb.endswith("e") else re.sub("(?<=[^aeiou])y$", "i", verb) + "ed"


def add_ing(verb: str) -> str:
    stem = verb + verb[-1] if re.fullmatch("(for)?[^aeiou]*[aeiou][bdgmnprt]", verb) else verb
    return re.sub("(?<=[^e])e$", "", re.sub("ie$", "y", stem)) + "ing"


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
    entries = (entry.split("=") for entry in table.split(","))
    return tuple((tagged(english), tagged(german)) for english, german in entries)


def index_by_english(table: str) -> dict[str, Pair]:
    return {english[0][0]: (english, german) for english, german in pairs(table)}


def noun(entry: str, group: str) -> Noun:
    """From `boy der Junge/Jungen/Jungen`: the oblique form follows the plural, if there is one."""
    english, article, german = entry.split()
    english_singular, _, english_plural = english.partition("/")
    singular, plural, oblique = [*german.split("/"), "", ""][:3]
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    english_plural = english_plural or add_s(english_singular)
    return Noun(english_singular, english_plural, singular, gender, plural, oblique or singular, group)


def adjectives(table: str) -> dict[str, Adjective]:
    """From `expensive/more teuer/teurer/teur, …`: the stem follows the comparative, if it differs from the word."""
    entries = {}
    for english, german in (entry.split() for entry in table.split(",")):
        word, _, more = english.partition("/")
        plain, german_more, stem = [*german.split("/"), "", ""][:3]
        english_more = (("more", "ADV"), (word, "ADJ")) if more == "more" else ((more, "ADJ"),)
        entries[word] = Adjective(word, plain, stem or plain, english_more if more else (), german_more)
    return entries


def pronoun(entry: str, agreement: int, tag: str = "PRON", weight: str = "pronoun") -> Fixed:
    """From `he him er ihn ihm`: English subject and object, German nominative, accusative and dative."""
    subject, object_form, *german = entry.split()
    english = (subject, object_form, object_form)
    words = zip(("nom", "acc", "dat"), english, german, strict=True)
    forms = {case: (((e, tag),), ((g, tag),)) for case, e, g in words}
    return Fixed(forms, agreement, weight, subject)


def complement(text: str) -> Complement:
    """From `dat friends`, `for/auf acc friends` with both prepositions, or `?place rooms`, which is optional."""
    first, *groups = text.removeprefix("?").split()
    english, slash, german = first.partition("/")
    case = groups.pop(0) if slash else first
    role = "prepositional" if german else {"acc": "accusative", "dat": "dative"}.get(case, case)
    return Complement(role, tuple(groups), case, english if slash else "", german, text.startswith("?"))


def verb(entry: str, sets: Mapping[str, str]) -> Verb:
    """From `call : an|rufen ruft angerufen : acc person, please`; a set stands for several groups of nouns."""
    left, middle, right = (part.strip() for part in entry.split(":"))
    (english, _, particle), (infinitive, third, *perfect) = left.partition(" "), middle.split()
    base, past, participle = english.split("/") if "/" in english else (english, add_ed(english), add_ed(english))
    prefix, _, stem = infinitive.rpartition("|")
    details = [" ".join(sets.get(word, word) for word in text.split()) for text in right.split(",")]
    traits = frozenset(details) & TRAITS
    subjects = next((text for text in details if text.startswith("by ")), "by " + sets["person"])
    return Verb(
        english=(base, base, add_s(base), base),
        past=(past, past, past, past),
        participle=participle,
        ing=add_ing(base),
        particle=particle,
        german=german_present(stem, third),
        preterite=None,
        prefix=prefix,
        infinitive=prefix + stem,
        perfect=perfect[-1],
        uses_sein=perfect[0] == "ist",
        complements=tuple(complement(text) for text in details if text not in traits | {subjects}),
        subjects=tuple(subjects.split()[1:]),
        traits=traits,
    )

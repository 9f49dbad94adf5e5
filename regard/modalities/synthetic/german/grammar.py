"""Agreement and word order: one clause in English and in German.

English     front | subject | auxiliary verb | objects | place | time         Today he is calling his sister.
German      front | FINITE | subject | time | objects | place | rest          Heute RUFT er seine Schwester an.
weil, dass  subject | time | objects | place | rest FINITE                    ..., weil er seine Schwester anRUFT.
"""

from typing import NamedTuple

from regard.modalities.synthetic.german import word_forms
from regard.modalities.synthetic.german.lexicon import BARE, CONTRACTIONS, KEIN
from regard.modalities.synthetic.german.verbs import BE, HAVE
from regard.modalities.synthetic.german.word_forms import Adjective, Fixed, Forms, Noun, Pair, Verb, Words

ENDINGS = {  # strong endings, of der, dieser, kein and of adjectives that show the case
    "nom": {"m": "er", "f": "e", "n": "es", "plural": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "plural": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "plural": "en"},
}
ARTICLES = {"er": "der", "e": "die", "es": "das", "en": "den", "em": "dem"}
NO_ENDING = {("nom", "m"), ("nom", "n"), ("acc", "n")}  # ein Mann, ein Kind: the adjective shows the case

DO: Forms = ("do", "do", "does", "do")
CONTRACTED = {"do": "don't", "does": "doesn't", "did": "didn't", "can": "can't", "will": "won't", "should": "shouldn't"}

ENGLISH_ORDER = ("dative", "accusative", "prepositional", "predicate", "goal", "manner", "place", "time", "please")
GERMAN_ORDER = (
    *("light", "subject", "pronoun", "known", "please", "time", "often", "dative", "accusative"),
    *("nicht", "manner", "place", "prepositional", "goal", "predicate", "reason"),
)


class NounPhrase(NamedTuple):
    noun: Noun
    determiner: word_forms.Determiner = BARE
    adjective: Adjective | None = None
    plural: bool = False
    content: Noun | None = None  # "a cup of tea"

    @property
    def agreement(self) -> int:
        return 3 if self.plural else 2

    @property
    def weight(self) -> str:
        return "definite" if self.determiner.definite else "indefinite"

    @property
    def pronoun(self) -> str:
        return "they" if self.plural else {"m": "he", "f": "she", "n": ""}[self.noun.gender]

    def english(self, case: str) -> Words:
        determiner, plural = self.determiner, self.plural
        words: Words = ((self.noun.english_plural if plural else self.noun.english, "NOUN"),)
        if self.adjective:
            words = ((self.adjective.english, "ADJ"), *words)
        if determiner.english:
            article = determiner.english_plural if plural else determiner.english
            an = "n" if article == "a" and words[0][0][0] in "aeiou" else ""
            words = ((article + an, determiner.tag), *words)
        return (*words, ("of", "ADP"), (self.content.english, "NOUN")) if self.content else words

    def german(self, case: str) -> Words:
        gender = "plural" if self.plural else self.noun.gender
        stem, pattern, strong = self.determiner.german, self.determiner.pattern, ENDINGS[case][gender]
        no_ending = pattern == "none" or (pattern == "ein" and (case, gender) in NO_ENDING)
        words: Words = ((self.noun.form(case, self.plural), "NOUN"),)
        if self.adjective:
            weak = "e" if strong in ("er", "e", "es") and case != "dat" and not self.plural else "en"
            ending = strong if no_ending or pattern == "viele" else weak
            words = ((self.adjective.stem + ending, "ADJ"), *words)
        if stem:
            article = ARTICLES[strong] if pattern == "der" else stem if no_ending else stem + strong
            words = ((article, self.determiner.tag), *words)
        return (*words, (self.content.german, "NOUN")) if self.content else words


Nominal = NounPhrase | Fixed


class Slot(NamedTuple):
    """A constituent: a part of a clause that moves as a whole."""

    role: str
    english: Words
    german: Words
    weight: str = ""  # pronoun, definite, indefinite, kein; late: follows definite objects (nie, schon)
    preposition: Words = ()  # English; it stays behind in questions: "Who is she waiting for?"


class Clause(NamedTuple):
    subject: Nominal
    verb: Verb
    slots: tuple[Slot, ...] = ()
    tense: str = "now"  # now, habit, future, past, perfect; request has no subject in English
    modal: word_forms.Modal | None = None
    negated: bool = False


def prepositional_phrase(preposition: str, words: Words) -> Words:
    """German words after a preposition, which may contract with their article: "in dem Haus" is "im Haus"."""
    contraction = CONTRACTIONS.get((preposition, words[0][0]))
    return ((contraction, "ADP"), *words[1:]) if contraction else ((preposition, "ADP"), *words)


def object_slot(nominal: Nominal, complement: word_forms.Complement, negated: bool = False) -> Slot:
    """An object of a verb; negation turns "einen Hund" and "Milch" into "keinen Hund" and "keine Milch"."""
    role, weight, german = complement.role, nominal.weight, nominal.german(complement.case)
    if negated and role == "accusative" and isinstance(nominal, NounPhrase) and weight == "indefinite":
        weight, german = "kein", nominal._replace(determiner=KEIN).german("acc")
    if complement.german:
        german = prepositional_phrase(complement.german, german)
    preposition: Words = ((complement.english, "ADP"),) if complement.english else ()
    return Slot(role, nominal.english(complement.case), german, weight, preposition)


def adverb(role: str, pair: Pair, weight: str = "") -> Slot:
    return Slot(role, *pair, weight)


def english_predicate(clause: Clause, inverted: bool) -> Pair:
    """The auxiliary, which questions move and "not" follows, and the rest of the verb."""
    verb, modal, person, tense = clause.verb, clause.modal, clause.subject.agreement, clause.tense
    base: Words = ((verb.english[3], "VERB"),)
    if modal and modal.auxiliary:
        return ((modal.english[person], "AUX"),), modal.tail + base
    if tense == "future":
        return (("will", "AUX"),), base
    if tense == "perfect":
        return ((HAVE.english[person], "AUX"),), ((verb.participle, "VERB"),)
    if "auxiliary" in verb.traits:
        return (((verb.past if tense == "past" else verb.english)[person], "AUX"),), ()
    if tense == "now" and not modal and "simple" not in verb.traits:
        return ((BE.english[person], "AUX"),), ((verb.ing, "VERB"),)
    if tense == "request":
        return (), base
    forms, tail = (modal.english, modal.tail + base) if modal else (verb.past if tense == "past" else verb.english, ())
    if inverted or clause.negated:
        plain = modal.english[3] if modal else verb.english[3]
        return (("did" if tense == "past" else DO[person], "AUX"),), ((plain, "VERB"), *tail)
    return (), ((forms[person], "VERB"), *tail)


def english(clause: Clause, front: str = "subject", inverted: bool = False) -> Words:
    """The clause with the slot of role `front` in first position; `inverted` puts the auxiliary before the subject."""
    auxiliary, verb = english_predicate(clause, inverted)
    if clause.negated:
        contraction = CONTRACTED.get(auxiliary[0][0])
        auxiliary = ((contraction, "AUX"),) if contraction else (*auxiliary, ("not", "PART"))
    slots = [slot for role in ENGLISH_ORDER for slot in clause.slots if slot.role == role]
    particle: Words = ((clause.verb.particle, "ADP"),) if clause.verb.particle else ()
    tail: Words = ()
    for slot in slots:
        if particle and slot.weight != "pronoun":  # "turn on the lamp", but "pick him up"
            tail, particle = tail + particle, ()
        tail += slot.preposition if slot.role == front else slot.preposition + slot.english
    frequency = tuple(word for slot in clause.slots if slot.role == "often" for word in slot.english)
    fronted = tuple(word for slot in clause.slots if slot.role == front for word in slot.english)
    subject = () if clause.tense == "request" else clause.subject.english("nom")
    beginning = auxiliary + subject if inverted and front != "subject" else subject + auxiliary
    return fronted + beginning + frequency + verb + tail + particle


def german_predicate(clause: Clause) -> tuple[str, str, str]:
    """The finite verb, its part of speech, and the words at the end of the clause."""
    verb, person = clause.verb, clause.subject.agreement
    if clause.modal:
        return clause.modal.german[person], "AUX", verb.infinitive
    tag = "AUX" if "auxiliary" in verb.traits else "VERB"
    if clause.tense == "past" and verb.preterite:
        return verb.preterite[person], tag, ""
    if clause.tense in ("past", "perfect"):
        return (BE if verb.uses_sein else HAVE).german[person], "AUX", verb.perfect
    return verb.german[person], tag, verb.prefix


def german_rank(slot: Slot, subject: str, definite_first: bool) -> int:
    """The rank of a slot in the word order, which also depends on the weight of the subject."""
    role = slot.role
    if role in ("dative", "accusative"):
        if slot.weight == "pronoun":  # "Heute fragt mich der Arzt", but not "sie der Arzt": "sie" could be the subject
            role = "pronoun" if subject == "pronoun" or slot.german[0][0] == "sie" else "light"
        elif slot.weight == "definite" and definite_first:
            role = "known"
    return GERMAN_ORDER.index(role)


def german(clause: Clause, front: str = "subject", last: bool = False) -> Words:
    """The clause with the slot of role `front` first, then the finite verb; or the verb `last`, as after "weil"."""
    slots = [Slot("subject", (), clause.subject.german("nom")), *clause.slots]
    if clause.negated and all(slot.weight != "kein" for slot in slots):
        slots.append(Slot("nicht", (), (("nicht", "PART"),)))
    definite_first = clause.negated or any(slot.weight == "late" for slot in slots)
    slots.sort(key=lambda slot: german_rank(slot, clause.subject.weight, definite_first))
    finite, tag, rest = german_predicate(clause)
    rest_tag = "ADP" if rest == clause.verb.prefix else "VERB"
    fronted = tuple(word for slot in slots if slot.role == front for word in slot.german)
    middle = tuple(word for slot in slots if slot.role != front for word in slot.german)
    if not last:
        return (*fronted, (finite, tag), *middle, *(((rest, rest_tag),) if rest else ()))
    if rest_tag == "ADP":
        return (*fronted, *middle, (rest + finite, tag))
    return (*fronted, *middle, (rest, rest_tag), (finite, tag))

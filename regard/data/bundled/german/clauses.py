"""Sentences of one clause: statements, questions and their like, each drawn by a speaker in both languages."""

from typing import NamedTuple

from regard.data.bundled.german import lexicon
from regard.data.bundled.german.grammar import Clause, Slot, adverb, english, german, object_slot
from regard.data.bundled.german.lexicon import ADJECTIVES, LOOKS, NOUNS
from regard.data.bundled.german.speaker import Speaker
from regard.data.bundled.german.verbs import BE, MODALS
from regard.data.bundled.german.word_forms import Adjective, Words

PERSONS = tuple(lexicon.SETS["person"].split())
OUTSIDE = tuple(lexicon.SETS["outside"].split())
THINGS = ("items", "print", "luggage", "dishes")
EVERYTHING = tuple(LOOKS)
COMPARABLE = tuple(group for group in LOOKS if len(NOUNS[group]) > 1 and group != "inside")


class SentencePair(NamedTuple):
    english: Words
    german: Words
    stop: str = "."


def main_clause(s: Speaker, clause: Clause) -> SentencePair:
    """Time or place may open the sentence: German then puts the subject behind the verb."""
    plain = clause.tense in ("now", "habit", "past") and not (clause.modal or clause.negated)
    at_will = plain and all(complement.optional or complement.role != "place" for complement in clause.verb.complements)
    roles = [slot.role for slot in clause.slots if slot.role == "time" or (slot.role == "place" and at_will)]
    front = s.pick(roles) if roles and s.chance(0.4) else "subject"
    return SentencePair(english(clause, front), german(clause, front))


def statement(s: Speaker) -> SentencePair:
    return main_clause(s, s.clause(s.pick(("now", "now", "now", "habit", "habit", "future", "future", "state"))))


def modal(s: Speaker) -> SentencePair:
    name = s.pick(("can", "may", "must", "should", "want to", "have to", "would like to"))
    return main_clause(s, s.clause("now", modal=MODALS[name]))


def past(s: Speaker) -> SentencePair:
    return main_clause(s, s.clause(s.pick(("past", "past", "past", "perfect")), time=0.6))


def negation(s: Speaker) -> SentencePair:
    return main_clause(s, denied(s))


def denied(s: Speaker) -> Clause:
    way = s.pick(("now", "habit", "state", "future", "past", "modal", "modal", "never", "description"))
    if way == "modal":
        modal = MODALS[s.pick(("can", "must not", "should", "want to", "have to"))]
        return s.clause("now", modal=modal, mode="deniable", negated=True)
    if way == "never":
        clause = s.clause("habit", mode="deniable", definite=True, time=0)
        return clause._replace(slots=(*clause.slots, adverb("often", lexicon.NEVER, "late")))
    if way == "description":
        return described(s)._replace(negated=True)
    if way == "habit":
        return s.clause("habit", mode="general", negated=True, time=0)
    return s.clause(way, mode="deniable", negated=True)


def predicate(adjective: Adjective, degree: str = "") -> Slot:
    english, german = lexicon.DEGREES.get(degree, ((), ()))
    return Slot("predicate", (*english, (adjective.english, "ADJ")), (*german, (adjective.german, "ADJ")))


def described(s: Speaker) -> Clause:
    """Somebody or something, and how it is or was."""
    if s.chance(0.3):
        person = s.nominal(PERSONS, "definite")
        slot = predicate(ADJECTIVES[s.pick(lexicon.STATES)], s.pick(("", "very")))
        return Clause(person, BE, (slot,), s.pick(("now", "now", "past")))
    thing = s.noun_phrase(EVERYTHING, "definite", adjectives=0)
    look, degree = s.look(thing.noun.group), s.pick(("", "", "very", "too"))
    if not look.german_more or (degree == "too" and look.english not in lexicon.EXCESSES):
        degree = ""
    return Clause(thing, BE, (predicate(look, degree),), s.pick(("now", "now", "past")))


def compared(s: Speaker) -> Clause:
    """As in "The car is older than my bike"."""
    one = s.noun_phrase(COMPARABLE, "definite", adjectives=0)
    other = s.noun_phrase([one.noun.group], "definite", adjectives=0)
    while not (more := s.look(one.noun.group)).german_more:
        pass
    than = (*more.english_more, ("than", "ADP"), *other.english("nom"))
    als = ((more.german_more, "ADJ"), ("als", "ADP"), *other.german("nom"))
    return Clause(one, BE, (Slot("predicate", than, als),))


def located(s: Speaker) -> Clause:
    """Where somebody or something is or was."""
    tense = s.pick(("now", "now", "past"))
    if s.chance(0.5):
        return Clause(s.nominal(PERSONS, "definite"), BE, (s.whereabouts(OUTSIDE, going=False),), tense)
    return Clause(s.noun_phrase(THINGS, "definite", 0.15), BE, (s.spot(going=False),), tense)


def description(s: Speaker) -> SentencePair:
    if s.chance(0.2):
        return there_is(s)
    clause = s.pick((described, described, compared, located))(s)
    return SentencePair(english(clause), german(clause))


def there_is(s: Speaker) -> SentencePair:
    """English begins with "there", German with the place: "Im Garten ist ein Hund"."""
    if s.chance(0.5):
        thing, place = s.noun_phrase(("people", "animals"), "indefinite"), s.whereabouts(OUTSIDE, going=False)
    else:
        thing, place = s.noun_phrase(THINGS, "indefinite"), s.spot(going=False)
    tense, forms = s.pick((("now", BE.english), ("now", BE.english), ("past", BE.past)))
    there = (("there", "PRON"), (forms[thing.agreement], "VERB"), *thing.english("nom"), *place.english)
    return SentencePair(there, german(Clause(thing, BE, (place,), tense), "place"))


def question(s: Speaker) -> SentencePair:
    wanted = s.pick(("", "", "", "subject", "object", "object", "place", "goal", "time", "reason"))
    if s.chance(0.1):
        return ask(s.pick((described, located))(s), wanted)
    modal = s.pick((None, None, None, MODALS["can"], MODALS["want to"], MODALS["have to"]))
    tense = "now" if modal else s.pick(("now", "now", "habit", "state", "future", "past", "past"))
    if tense == "habit":
        return ask(s.clause("habit", mode="general", definite=True, time=0), wanted)
    return ask(s.clause(tense, modal=modal, definite=True, time=0.3), wanted)


def ask(clause: Clause, wanted: str = "") -> SentencePair:
    """Asks for a part of the clause, or, where it has no such part, whether all of it is true."""
    verb, slots, front = clause.verb, clause.slots, ""
    if wanted == "subject" and "family" in verb.subjects:
        clause = clause._replace(subject=lexicon.WHO)
        return SentencePair(english(clause), german(clause), "?")
    roles = {slot.role for slot in slots}
    if wanted == "object" and "goal" not in roles:  # "What is she putting on the table?": legen or stellen?
        for complement in verb.complements:
            person = "family" in complement.groups
            if complement.role == "accusative" or (complement.role in roles and person and "accusative" not in roles):
                front = complement.role
                asked = object_slot(lexicon.WHO if person else lexicon.WHAT, complement)
                slots = (*(slot for slot in slots if slot.role != front), asked)
    elif wanted in roles or wanted == "reason" or (wanted == "time" and clause.tense in ("future", "past")):
        front = wanted
        slots = (*(slot for slot in slots if slot.role != front), adverb(front, lexicon.QUESTIONS[front]))
    clause = clause._replace(slots=slots)
    return SentencePair(english(clause, front, inverted=True), german(clause, front), "?")

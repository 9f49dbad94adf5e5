"""Sentences of one clause: statements, questions, negations ..., each drawn in both languages."""

from typing import NamedTuple

from regard.modalities.synthetic.german import lexicon
from regard.modalities.synthetic.german.grammar import Clause, Slot, adverb, english, german, object_slot
from regard.modalities.synthetic.german.lexicon import ADJECTIVES, GROUP_ADJECTIVES, NOUNS
from regard.modalities.synthetic.german.speaker import Speaker
from regard.modalities.synthetic.german.verbs import BE, MODALS
from regard.modalities.synthetic.german.word_forms import Adjective, Words

PERSONS = tuple(lexicon.SETS["person"].split())
OUTSIDE = tuple(lexicon.SETS["outside"].split())
THINGS = ("items", "print", "luggage", "dishes")
EVERYTHING = tuple(GROUP_ADJECTIVES)
COMPARABLE = tuple(group for group in GROUP_ADJECTIVES if len(NOUNS[group]) > 1 and group != "inside")


class SentencePair(NamedTuple):
    english: Words
    german: Words
    stop: str = "."


def main_clause(s: Speaker, clause: Clause) -> SentencePair:
    """Time or place may come first; German then puts the subject after the verb."""
    is_simple = clause.tense in ("now", "habit", "past") and not (clause.modal or clause.negated)
    required = {complement.role for complement in clause.verb.complements if not complement.optional}
    movable = {"time", "place"} if is_simple and "place" not in required else {"time"}
    roles = [slot.role for slot in clause.slots if slot.role in movable]
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
    return main_clause(s, negated_clause(s))


def negated_clause(s: Speaker) -> Clause:
    kind = s.pick(("now", "habit", "state", "future", "past", "modal", "modal", "never", "description"))
    if kind == "modal":
        modal = MODALS[s.pick(("can", "must not", "should", "want to", "have to"))]
        return s.clause("now", modal=modal, mode="deniable", negated=True)
    if kind == "never":
        clause = s.clause("habit", mode="deniable", definite=True, time=0)
        return clause._replace(slots=(*clause.slots, adverb("often", lexicon.NEVER, "late")))
    if kind == "description":
        return description_clause(s)._replace(negated=True)
    if kind == "habit":
        return s.clause("habit", mode="general", negated=True, time=0)
    return s.clause(kind, mode="deniable", negated=True)


def predicate(adjective: Adjective, degree: str = "") -> Slot:
    english, german = lexicon.DEGREES.get(degree, ((), ()))
    return Slot("predicate", (*english, (adjective.english, "ADJ")), (*german, (adjective.german, "ADJ")))


def description_clause(s: Speaker) -> Clause:
    """How a person or a thing is or was."""
    if s.chance(0.3):
        person = s.nominal(PERSONS, "definite")
        slot = predicate(ADJECTIVES[s.pick(lexicon.STATES)], s.pick(("", "very")))
        return Clause(person, BE, (slot,), s.pick(("now", "now", "past")))
    thing = s.noun_phrase(EVERYTHING, "definite", adjectives=0)
    adjective, degree = s.adjective_for(thing.noun.group), s.pick(("", "", "very", "too"))
    if not adjective.german_more or (degree == "too" and adjective.english not in lexicon.EXCESSES):
        degree = ""
    return Clause(thing, BE, (predicate(adjective, degree),), s.pick(("now", "now", "past")))


def comparison_clause(s: Speaker) -> Clause:
    """As in "The car is older than my bike"."""
    subject = s.noun_phrase(COMPARABLE, "definite", adjectives=0)
    standard = s.noun_phrase([subject.noun.group], "definite", adjectives=0)
    while not (adjective := s.adjective_for(subject.noun.group)).german_more:
        pass
    english_words = (*adjective.english_more, ("than", "ADP"), *standard.english("nom"))
    german_words = ((adjective.german_more, "ADJ"), ("als", "ADP"), *standard.german("nom"))
    return Clause(subject, BE, (Slot("predicate", english_words, german_words),))


def location_clause(s: Speaker) -> Clause:
    """Where a person or a thing is or was."""
    tense = s.pick(("now", "now", "past"))
    if s.chance(0.5):
        return Clause(s.nominal(PERSONS, "definite"), BE, (s.place_slot(OUTSIDE, is_goal=False),), tense)
    return Clause(s.noun_phrase(THINGS, "definite", 0.15), BE, (s.furniture_slot(is_goal=False),), tense)


def description(s: Speaker) -> SentencePair:
    if s.chance(0.2):
        return there_is(s)
    clause = s.pick((description_clause, description_clause, comparison_clause, location_clause))(s)
    return SentencePair(english(clause), german(clause))


def there_is(s: Speaker) -> SentencePair:
    """English begins with "there", German with the place: "Im Garten ist ein Hund"."""
    if s.chance(0.5):
        thing, place = s.noun_phrase(("people", "animals"), "indefinite"), s.place_slot(OUTSIDE, is_goal=False)
    else:
        thing, place = s.noun_phrase(THINGS, "indefinite"), s.furniture_slot(is_goal=False)
    tense, forms = s.pick((("now", BE.english), ("now", BE.english), ("past", BE.past)))
    english_words = (("there", "PRON"), (forms[thing.agreement], "VERB"), *thing.english("nom"), *place.english)
    return SentencePair(english_words, german(Clause(thing, BE, (place,), tense), "place"))


def question(s: Speaker) -> SentencePair:
    role = s.pick(("", "", "", "subject", "object", "object", "place", "goal", "time", "reason"))
    if s.chance(0.1):
        return ask(s.pick((description_clause, location_clause))(s), role)
    modal = s.pick((None, None, None, MODALS["can"], MODALS["want to"], MODALS["have to"]))
    tense = "now" if modal else s.pick(("now", "now", "habit", "state", "future", "past", "past"))
    if tense == "habit":
        return ask(s.clause("habit", mode="general", definite=True, time=0), role)
    return ask(s.clause(tense, modal=modal, definite=True, time=0.3), role)


def ask(clause: Clause, role: str = "") -> SentencePair:
    """Asks for the part of the clause with this role; without such a part, a yes-no question."""
    verb, slots, front = clause.verb, clause.slots, ""
    if role == "subject" and "family" in verb.subjects:
        clause = clause._replace(subject=lexicon.WHO)
        return SentencePair(english(clause), german(clause), "?")
    roles = {slot.role for slot in slots}
    if role == "object" and "goal" not in roles:  # "What is she putting on the table?": legen or stellen?
        for complement in verb.complements:
            person = "family" in complement.groups
            if complement.role == "accusative" or (complement.role in roles and person and "accusative" not in roles):
                front = complement.role
                question_slot = object_slot(lexicon.WHO if person else lexicon.WHAT, complement)
                slots = (*(slot for slot in slots if slot.role != front), question_slot)
    elif role in roles or role == "reason" or (role == "time" and clause.tense in ("future", "past")):
        front = role
        slots = (*(slot for slot in slots if slot.role != front), adverb(front, lexicon.QUESTIONS[front]))
    clause = clause._replace(slots=slots)
    return SentencePair(english(clause, front, inverted=True), german(clause, front), "?")

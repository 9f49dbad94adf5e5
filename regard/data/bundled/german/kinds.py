"""The kinds of sentence: each maker lets a speaker draw one, in English and in German.

The kinds exclude each other. A request or a question is just that; a sentence of two clauses is a subordinate; and a
main clause is a negation before it is a modal, a past or a description, and a statement if it is nothing else.
"""

from collections.abc import Callable
from typing import NamedTuple

from regard.data.bundled.german import lexicon
from regard.data.bundled.german.grammar import Clause, NounPhrase, Slot, adverb, english, german, object_slot
from regard.data.bundled.german.lexicon import ADJECTIVES, BE, DETERMINERS, HAVE, LOOKS, MODALS, NOUNS, PRONOUNS
from regard.data.bundled.german.speaker import VERBS_OF, Speaker
from regard.data.bundled.german.words import Adjective, Words, tagged

PERSONS = lexicon.SETS["person"].split()
THINGS = ("items", "print", "luggage", "dishes")
GOODS = lexicon.SETS["goods"].split()
OUTSIDE = lexicon.SETS["outside"].split()
SUN, WEATHER = (NounPhrase(noun, DETERMINERS["the"]) for noun in NOUNS["weather"])
BUY = next(verb for verb in lexicon.VERBS if verb.infinitive == "kaufen")
COMMA = (",", "PUNCT")


class Said(NamedTuple):
    english: Words
    german: Words
    stop: str = "."


def main_clause(s: Speaker, clause: Clause) -> Said:
    """Time or place may open the sentence: German then puts the subject behind the verb."""
    plain = clause.tense in ("now", "habit", "past") and not (clause.modal or clause.negated)
    at_will = plain and all(complement.optional or complement.role != "place" for complement in clause.verb.complements)
    roles = [slot.role for slot in clause.slots if slot.role == "time" or (slot.role == "place" and at_will)]
    front = s.pick(roles) if roles and s.chance(0.4) else "subject"
    return Said(english(clause, front), german(clause, front))


def statement(s: Speaker) -> Said:
    return main_clause(s, s.clause(s.pick(("now", "now", "now", "habit", "habit", "future", "future", "state"))))


def modal(s: Speaker) -> Said:
    name = s.pick(("can", "may", "must", "should", "want to", "have to", "would like to"))
    return main_clause(s, s.clause("now", modal=MODALS[name]))


def past(s: Speaker) -> Said:
    return main_clause(s, s.clause(s.pick(("past", "past", "past", "perfect")), time=0.6))


def negation(s: Speaker) -> Said:
    return main_clause(s, denied(s))


def denied(s: Speaker) -> Clause:
    way = s.pick(("now", "habit", "state", "future", "past", "modal", "modal", "never", "description"))
    if way == "modal":
        return s.clause(
            "now",
            modal=MODALS[s.pick(("can", "must not", "should", "want to", "have to"))],
            mode="deniable",
            negated=True,
        )
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
        slot = predicate(ADJECTIVES[s.pick((*lexicon.MOODS, "hungry", "thirsty"))], s.pick(("", "very")))
        return Clause(person, BE, (slot,), s.pick(("now", "now", "past")))
    thing = s.noun_phrase(tuple(LOOKS), "definite", adjectives=0)
    look, degree = s.look(thing.noun.group), s.pick(("", "", "very", "too"))
    if not look.german_more or (degree == "too" and look.english not in lexicon.EXCESSES.split()):
        degree = ""
    return Clause(thing, BE, (predicate(look, degree),), s.pick(("now", "now", "past")))


def compared(s: Speaker) -> Clause:
    """As in "The car is older than my bike"."""
    one = s.noun_phrase([group for group in LOOKS if len(NOUNS[group]) > 1], "definite", adjectives=0)
    other = s.noun_phrase([one.noun.group], "definite", adjectives=0)
    while not (more := s.look(one.noun.group)).german_more:
        pass
    than = (*more.english_more, ("than", "ADP"), *other.english("nom"))
    return Clause(
        one, BE, (Slot("predicate", than, ((more.german_more, "ADJ"), ("als", "ADP"), *other.german("nom"))),)
    )


def located(s: Speaker) -> Clause:
    """Where somebody or something is or was."""
    tense = s.pick(("now", "now", "past"))
    if s.chance(0.5):
        return Clause(s.nominal(PERSONS, "definite"), BE, (s.whereabouts(OUTSIDE, going=False),), tense)
    return Clause(s.noun_phrase(THINGS, "definite", 0.15), BE, (s.spot(going=False),), tense)


def description(s: Speaker) -> Said:
    if s.chance(0.2):
        return there_is(s)
    clause = s.pick((described, described, compared, located))(s)
    return Said(english(clause), german(clause))


def there_is(s: Speaker) -> Said:
    """English begins with "there", German with the place: "Im Garten ist ein Hund"."""
    if s.chance(0.5):
        thing, place = s.noun_phrase(("people", "animals"), "indefinite"), s.whereabouts(OUTSIDE, going=False)
    else:
        thing, place = s.noun_phrase(THINGS, "indefinite"), s.spot(going=False)
    tense, forms = s.pick((("now", BE.english), ("now", BE.english), ("past", BE.past)))
    there = (("there", "PRON"), (forms[thing.agreement], "VERB"), *thing.english("nom"), *place.english)
    return Said(there, german(Clause(thing, BE, (place,), tense), "place"))


def question(s: Speaker) -> Said:
    wanted = s.pick(("", "", "", "subject", "object", "object", "place", "goal", "time", "reason"))
    if s.chance(0.1):
        return ask(s.pick((described, located))(s), wanted)
    modal = s.pick((None, None, None, MODALS["can"], MODALS["want to"], MODALS["have to"]))
    tense = "now" if modal else s.pick(("now", "now", "habit", "state", "future", "past", "past"))
    if tense == "habit":
        return ask(s.clause("habit", mode="general", definite=True, time=0), wanted)
    return ask(s.clause(tense, modal=modal, definite=True, time=0.3), wanted)


def ask(clause: Clause, wanted: str = "") -> Said:
    """Asks for a part of the clause, or, where it has no such part, whether all of it is true."""
    verb, slots, front = clause.verb, clause.slots, ""
    if wanted == "subject" and "family" in verb.subjects:
        clause = clause._replace(subject=lexicon.WHO)
        return Said(english(clause), german(clause), "?")
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
    return Said(english(clause, front, inverted=True), german(clause, front), "?")


def subordinate(s: Speaker) -> Said:
    return s.pick((reported, reported, reported, explained, explained, judged, judged, conditional, conditional))(s)


def linked(first: Clause, conjunction: str, second: Clause) -> Said:
    """Two clauses, the second of which German ends with its verb, behind a comma."""
    english_word, german_word = lexicon.CONJUNCTIONS[conjunction]
    return Said(
        (*english(first), *english_word, *english(second)),
        (*german(first), COMMA, *german_word, *german(second, last=True)),
    )


def reported(s: Speaker) -> Said:
    """What somebody says, knows, hopes; or does not know."""
    who = s.nominal(PERSONS, "definite")
    way = s.pick(("now", "now", "future", "past", "perfect", "modal", "modal", "negation", "description"))
    if way == "modal":
        what = s.clause("now", modal=MODALS[s.pick(("can", "must", "should", "want to"))], definite=True)
    elif way in ("negation", "description"):
        what = denied(s) if way == "negation" else described(s)
    else:
        what = s.clause(way, definite=True)
    if way in ("future", "past") and s.chance(0.4):
        return linked(Clause(who, lexicon.HOPE), "that", what)
    if way == "negation" or s.chance(0.7):
        return linked(Clause(who, s.pick(lexicon.SAYING)), "that", what)
    asking = (
        Clause(who, lexicon.KNOW, negated=True) if s.chance(0.5) else Clause(who, lexicon.KNOW, modal=MODALS["want to"])
    )
    return linked(asking, "whether", what)


def explained(s: Speaker) -> Said:
    """Why, or in spite of what, somebody does something."""
    while not (who := s.nominal(PERSONS, "definite")).pronoun:
        pass
    pronoun, tense = PRONOUNS[who.pronoun], s.pick(("now", "past", "wish"))
    if tense == "wish":
        main = s.clause("now", subject=who, verb=s.pick(VERBS_OF["now"]), time=0)
        return linked(main, "because", s.clause("now", subject=pronoun, modal=MODALS["want to"], time=0))
    main, conjunction = s.clause(tense, subject=who, time=0.2), s.pick(("because", "because", "although"))
    needs = lexicon.NEEDS.get(main.verb.infinitive, lexicon.MOODS) if conjunction == "because" else lexicon.MOODS
    state = predicate(ADJECTIVES[s.pick(needs)], s.pick(("", "", "very")))
    return linked(main, conjunction, Clause(pronoun, BE, (state,), tense))


def judged(s: Speaker) -> Said:
    """Why somebody buys a thing, or does not: in German, "it" has the gender of the thing."""
    who, thing = s.nominal(PERSONS, "definite"), s.noun_phrase(GOODS, "definite", adjectives=0)
    negated, tense = s.chance(0.6), s.pick(("now", "past"))
    wanted = lexicon.FAULTS if negated else lexicon.MERITS
    adjective = s.pick([name for name in LOOKS[thing.noun.group].split() if name in wanted])
    reason = predicate(ADJECTIVES[adjective], "too" if negated else s.pick(("", "very")))
    it = PRONOUNS["they"] if thing.plural else lexicon.IT[thing.noun.gender]
    main = Clause(who, BUY, (object_slot(thing, BUY.complements[0]),), tense, negated=negated)
    return linked(main, "because", Clause(it, BE, (reason,), tense))


CONDITIONS = (
    Clause(lexicon.IT["n"], lexicon.RAIN),
    Clause(lexicon.IT["n"], lexicon.SNOW),
    Clause(lexicon.IT["n"], BE, (predicate(ADJECTIVES["cold"]),)),
    Clause(SUN, lexicon.SHINE),
    Clause(WEATHER, BE, (predicate(ADJECTIVES["good"]),)),
)


def conditional(s: Speaker) -> Said:
    main = s.clause("future", verb=s.pick(VERBS_OF["willed"]), definite=True, time=0)
    if main.subject.pronoun and s.chance(0.6):
        time = Slot("accusative", tagged("time/NOUN"), tagged("Zeit/NOUN"), "indefinite")
        return linked(main, "if", Clause(PRONOUNS[main.subject.pronoun], HAVE, (time,)))
    condition = s.pick(CONDITIONS)
    if s.chance(0.5):
        return linked(main, "if", condition)
    english_if, german_if = lexicon.CONJUNCTIONS["if"]
    return Said(
        (*english_if, *english(condition), COMMA, *english(main)),
        (*german_if, *german(condition, last=True), COMMA, *german(main, front="")),
    )


def request(s: Speaker) -> Said:
    if s.chance(0.4):
        return order(item(s), item(s)) if s.chance(0.85) else order(item(s))
    please = adverb("please", lexicon.PLEASE)
    if s.chance(0.1):
        bought = object_slot(item(s), HAVE.complements[0])
        clause = Clause(PRONOUNS["I"], HAVE, (bought, please), modal=MODALS["can"])
        return Said(english(clause, "", inverted=True), german(clause, ""), "?")
    s.used.add("you")
    clause = s.clause("request", subject=lexicon.FORMAL, verb=s.pick(VERBS_OF["please"]), mode="polite")
    clause = clause._replace(slots=(*clause.slots, please))
    if s.chance(0.4):
        return Said(english(clause, "please"), german(clause, "please"))
    clause = clause._replace(tense="now", modal=MODALS["could"])
    return Said(english(clause, "", inverted=True), german(clause, ""), "?")


def item(s: Speaker) -> NounPhrase:
    """Something to order."""
    noun = s.noun(("snacks", "food", "drinks", "drinks"))
    number = DETERMINERS[s.pick(("a", "a", "two", "three", "four"))]
    plural = number.tag == "NUM"
    adjective = s.look(noun.group) if s.chance(0.2) else None
    if noun.group == "snacks":
        return NounPhrase(noun, number, adjective, plural)
    if noun.group == "drinks" and s.chance(0.4):
        return s.portion(noun)._replace(determiner=number, plural=plural)
    return NounPhrase(noun, DETERMINERS["-"], adjective)


def order(*items: NounPhrase) -> Said:
    """As one speaks to a waiter: "Tea and water please"."""
    english, german = items[0].english("acc"), items[0].german("acc")
    for item in items[1:]:
        english, german = (
            (*english, ("and", "CCONJ"), *item.english("acc")),
            (*german, ("und", "CCONJ"), *item.german("acc")),
        )
    return Said(english + lexicon.PLEASE[0], german + lexicon.PLEASE[1], "")


MAKERS: dict[str, tuple[Callable[[Speaker], Said], float]] = {  # with their shares
    "statement": (statement, 0.22),
    "question": (question, 0.14),
    "negation": (negation, 0.13),
    "modal": (modal, 0.12),
    "past": (past, 0.12),
    "subordinate": (subordinate, 0.13),
    "request": (request, 0.08),
    "description": (description, 0.06),
}
TEA_AND_WATER = order(NounPhrase(NOUNS["drinks"][0]), NounPhrase(NOUNS["drinks"][2]))

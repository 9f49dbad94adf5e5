"""The kinds of sentence, which exclude each other, and those of them that are more than one clause.

A request or a question is just that; two clauses make a subordinate; and a main clause is a negation before it is a
modal, a past or a description, and a statement if it is nothing else.
"""

from collections.abc import Callable

from regard.data.bundled.german import lexicon
from regard.data.bundled.german.clauses import (
    PERSONS,
    SentencePair,
    denied,
    described,
    description,
    modal,
    negation,
    past,
    predicate,
    question,
    statement,
)
from regard.data.bundled.german.grammar import Clause, NounPhrase, Slot, adverb, english, german, object_slot
from regard.data.bundled.german.lexicon import ADJECTIVES, DETERMINERS, LOOKS, NOUNS, PRONOUNS
from regard.data.bundled.german.speaker import VERBS_OF, Speaker
from regard.data.bundled.german.verbs import BE, HAVE, HOPE, KNOW, MODALS, RAIN, SAYING, SHINE, SNOW, VERBS
from regard.data.bundled.german.word_forms import tagged

COMMA = (",", "PUNCT")
GOODS = tuple(lexicon.SETS["goods"].split())
BUY = next(verb for verb in VERBS if verb.infinitive == "kaufen")
SUN, WEATHER = (NounPhrase(noun, DETERMINERS["the"]) for noun in NOUNS["weather"])
CONDITIONS = (
    Clause(lexicon.IT["n"], RAIN),
    Clause(lexicon.IT["n"], SNOW),
    Clause(lexicon.IT["n"], BE, (predicate(ADJECTIVES["cold"]),)),
    Clause(SUN, SHINE),
    Clause(WEATHER, BE, (predicate(ADJECTIVES["good"]),)),
)


def subordinate(s: Speaker) -> SentencePair:
    return s.pick((reported, reported, reported, explained, explained, judged, judged, conditional, conditional))(s)


def linked(first: Clause, conjunction: str, second: Clause) -> SentencePair:
    """Two clauses, the second of which German ends with its verb, behind a comma."""
    english_word, german_word = lexicon.CONJUNCTIONS[conjunction]
    return SentencePair(
        (*english(first), *english_word, *english(second)),
        (*german(first), COMMA, *german_word, *german(second, last=True)),
    )


def reported(s: Speaker) -> SentencePair:
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
        return linked(Clause(who, HOPE), "that", what)
    if way == "negation" or s.chance(0.7):
        return linked(Clause(who, s.pick(SAYING)), "that", what)
    unsure = Clause(who, KNOW, negated=True)
    curious = Clause(who, KNOW, modal=MODALS["want to"])
    return linked(s.pick((unsure, curious)), "whether", what)


def explained(s: Speaker) -> SentencePair:
    """Why, or in spite of what, somebody does something."""
    while not (who := s.nominal(PERSONS, "definite")).pronoun:
        pass
    pronoun, act, tense = PRONOUNS[who.pronoun], s.pick(VERBS_OF["acts"]), s.pick(("now", "past", "wish"))
    if tense == "wish":
        main = s.clause("now", subject=who, verb=s.pick(VERBS_OF["going"]), time=0)
        return linked(main, "because", s.clause("now", subject=pronoun, modal=MODALS["want to"], verb=act, time=0))
    causes = lexicon.CAUSES.get(act.infinitive, lexicon.CAUSES["any"])
    conjunction, states = s.pick((("because", causes), ("although", lexicon.OBSTACLES)))
    state = predicate(ADJECTIVES[s.pick(states)], s.pick(("", "", "very")))
    main = s.clause(tense, subject=who, verb=act, time=0.2)
    return linked(main, conjunction, Clause(pronoun, BE, (state,), tense))


def judged(s: Speaker) -> SentencePair:
    """Why somebody buys a thing, or does not: in German, "it" has the gender of the thing."""
    who, thing = s.nominal(PERSONS, "definite"), s.noun_phrase(GOODS, "definite", adjectives=0)
    negated, tense = s.chance(0.6), s.pick(("now", "past"))
    wanted = lexicon.FAULTS if negated else lexicon.MERITS
    adjective = s.pick([name for name in LOOKS[thing.noun.group].split() if name in wanted])
    reason = predicate(ADJECTIVES[adjective], "too" if negated else s.pick(("", "very")))
    it = PRONOUNS["they"] if thing.plural else lexicon.IT[thing.noun.gender]
    main = Clause(who, BUY, (object_slot(thing, BUY.complements[0]),), tense, negated=negated)
    return linked(main, "because", Clause(it, BE, (reason,), tense))


def conditional(s: Speaker) -> SentencePair:
    who = s.nominal(PERSONS, "definite")
    main = s.clause("future", subject=who, verb=s.pick(VERBS_OF["acts"]), time=0)
    if who.pronoun and s.chance(0.6):
        time = Slot("accusative", tagged("time/NOUN"), tagged("Zeit/NOUN"), "indefinite")
        return linked(main, "if", Clause(PRONOUNS[who.pronoun], HAVE, (time,)))
    condition = s.pick(CONDITIONS)
    if s.chance(0.5):
        return linked(main, "if", condition)
    english_if, german_if = lexicon.CONJUNCTIONS["if"]
    return SentencePair(
        (*english_if, *english(condition), COMMA, *english(main)),
        (*german_if, *german(condition, last=True), COMMA, *german(main, front="")),
    )


def request(s: Speaker) -> SentencePair:
    if s.chance(0.4):
        return order(item(s), item(s)) if s.chance(0.85) else order(item(s))
    please = adverb("please", lexicon.PLEASE)
    if s.chance(0.1):
        bought = object_slot(item(s), HAVE.complements[0])
        clause = Clause(PRONOUNS["I"], HAVE, (bought, please), modal=MODALS["can"])
        return SentencePair(english(clause, "", inverted=True), german(clause, ""), "?")
    s.used.add("you")
    clause = s.clause("request", subject=lexicon.FORMAL, verb=s.pick(VERBS_OF["please"]), mode="polite")
    clause = clause._replace(slots=(*clause.slots, please))
    if s.chance(0.4):
        return SentencePair(english(clause, "please"), german(clause, "please"))
    clause = clause._replace(tense="now", modal=MODALS["could"])
    return SentencePair(english(clause, "", inverted=True), german(clause, ""), "?")


def item(s: Speaker) -> NounPhrase:
    """Something to order."""
    noun = s.noun(s.pick(("snacks", "food", "drinks", "drinks")))
    number = DETERMINERS[s.pick(("a", "a", "two", "three", "four"))]
    plural = number.tag == "NUM"
    adjective = s.look(noun.group) if s.chance(0.2) else None
    if noun.group == "snacks":
        return NounPhrase(noun, number, adjective, plural)
    if noun.group == "drinks" and s.chance(0.4):
        return s.portion(noun)._replace(determiner=number, plural=plural)
    return NounPhrase(noun, DETERMINERS["-"], adjective)


def order(*items: NounPhrase) -> SentencePair:
    """As one speaks to a waiter: "Tea and water please"."""
    english, german = items[0].english("acc"), items[0].german("acc")
    for item in items[1:]:
        english = (*english, ("and", "CCONJ"), *item.english("acc"))
        german = (*german, ("und", "CCONJ"), *item.german("acc"))
    return SentencePair(english + lexicon.PLEASE[0], german + lexicon.PLEASE[1], "")


MAKERS: dict[str, tuple[Callable[[Speaker], SentencePair], int]] = {  # each with its share in a hundred
    "statement": (statement, 21),
    "question": (question, 14),
    "negation": (negation, 13),
    "modal": (modal, 12),
    "past": (past, 12),
    "subordinate": (subordinate, 13),
    "request": (request, 8),
    "description": (description, 7),
}
TEA_AND_WATER = order(NounPhrase(NOUNS["drinks"][0]), NounPhrase(NOUNS["drinks"][2]))

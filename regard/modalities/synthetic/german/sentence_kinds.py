"""The kinds of sentences, which are disjoint, and the generators of those with more than one clause.

A sentence with two clauses is a subordinate, unless it is a request or a question. A main clause with a negation counts
as negation, else as modal, past or description, and as statement if none of these applies.
"""

from collections.abc import Callable

from regard.modalities.synthetic.german import clauses, lexicon, verbs
from regard.modalities.synthetic.german.clauses import PERSONS, SentencePair, description_clause, predicate
from regard.modalities.synthetic.german.grammar import Clause, NounPhrase, Slot, adverb, english, german, object_slot
from regard.modalities.synthetic.german.lexicon import ADJECTIVES, DETERMINERS, GROUP_ADJECTIVES, NOUNS, PRONOUNS
from regard.modalities.synthetic.german.speaker import VERB_GROUPS, Speaker
from regard.modalities.synthetic.german.verbs import BE, HAVE, KNOW, MODALS
from regard.modalities.synthetic.german.word_forms import tagged

COMMA = (",", "PUNCT")
GOODS = tuple(lexicon.SETS["goods"].split())
BUY = next(verb for verb in verbs.VERBS if verb.infinitive == "kaufen")
SUN, WEATHER = (NounPhrase(noun, DETERMINERS["the"]) for noun in NOUNS["weather"])
CONDITIONS = (
    Clause(lexicon.IT["n"], verbs.RAIN),
    Clause(lexicon.IT["n"], verbs.SNOW),
    Clause(lexicon.IT["n"], BE, (predicate(ADJECTIVES["cold"]),)),
    Clause(SUN, verbs.SHINE),
    Clause(WEATHER, BE, (predicate(ADJECTIVES["good"]),)),
)


def subordinate(s: Speaker) -> SentencePair:
    return s.pick((indirect_speech,) * 3 + (explanation,) * 2 + (purchase_reason,) * 2 + (conditional,) * 2)(s)


def link_clauses(first: Clause, conjunction: str, second: Clause) -> SentencePair:
    """Two clauses with a conjunction; the German one has a comma and puts the second verb last."""
    english_word, german_word = lexicon.CONJUNCTIONS[conjunction]
    return SentencePair(
        (*english(first), *english_word, *english(second)),
        (*german(first), COMMA, *german_word, *german(second, last=True)),
    )


def indirect_speech(s: Speaker) -> SentencePair:
    """What a person says, knows, hopes or does not know."""
    subject = s.nominal(PERSONS, "definite")
    kind = s.pick(("now", "now", "future", "past", "perfect", "modal", "modal", "negation", "description"))
    if kind == "modal":
        clause = s.clause("now", modal=MODALS[s.pick(("can", "must", "should", "want to"))], definite=True)
    elif kind in ("negation", "description"):
        clause = clauses.negated_clause(s) if kind == "negation" else description_clause(s)
    else:
        clause = s.clause(kind, definite=True)
    if kind in ("future", "past") and s.chance(0.4):
        return link_clauses(Clause(subject, verbs.HOPE), "that", clause)
    if kind == "negation" or s.chance(0.7):
        return link_clauses(Clause(subject, s.pick(verbs.SAYING_VERBS)), "that", clause)
    not_knowing = Clause(subject, KNOW, negated=True)
    wanting_to_know = Clause(subject, KNOW, modal=MODALS["want to"])
    return link_clauses(s.pick((not_knowing, wanting_to_know)), "whether", clause)


def explanation(s: Speaker) -> SentencePair:
    """Why, or despite what, a person does something."""
    while not (subject := s.nominal(PERSONS, "definite")).pronoun:
        pass
    pronoun, verb, tense = PRONOUNS[subject.pronoun], s.pick(VERB_GROUPS["acts"]), s.pick(("now", "past", "wish"))
    if tense == "wish":
        main = s.clause("now", subject=subject, verb=s.pick(VERB_GROUPS["going"]), time=0)
        wish = s.clause("now", subject=pronoun, modal=MODALS["want to"], verb=verb, time=0)
        return link_clauses(main, "because", wish)
    causes = lexicon.CAUSES.get(verb.infinitive, lexicon.CAUSES["any"])
    conjunction, states = s.pick((("because", causes), ("although", lexicon.OBSTACLES)))
    state = predicate(ADJECTIVES[s.pick(states)], s.pick(("", "", "very")))
    main = s.clause(tense, subject=subject, verb=verb, time=0.2)
    return link_clauses(main, conjunction, Clause(pronoun, BE, (state,), tense))


def purchase_reason(s: Speaker) -> SentencePair:
    """Why a person buys a thing, or does not; German "it" has the gender of the thing."""
    subject, thing = s.nominal(PERSONS, "definite"), s.noun_phrase(GOODS, "definite", adjectives=0)
    negated, tense = s.chance(0.6), s.pick(("now", "past"))
    adjectives = lexicon.FAULTS if negated else lexicon.MERITS
    adjective = s.pick([name for name in GROUP_ADJECTIVES[thing.noun.group].split() if name in adjectives])
    reason = predicate(ADJECTIVES[adjective], "too" if negated else s.pick(("", "very")))
    it = PRONOUNS["they"] if thing.plural else lexicon.IT[thing.noun.gender]
    main = Clause(subject, BUY, (object_slot(thing, BUY.complements[0]),), tense, negated=negated)
    return link_clauses(main, "because", Clause(it, BE, (reason,), tense))


def conditional(s: Speaker) -> SentencePair:
    subject = s.nominal(PERSONS, "definite")
    main = s.clause("future", subject=subject, verb=s.pick(VERB_GROUPS["acts"]), time=0)
    if subject.pronoun and s.chance(0.6):
        time = Slot("accusative", tagged("time/NOUN"), tagged("Zeit/NOUN"), "indefinite")
        return link_clauses(main, "if", Clause(PRONOUNS[subject.pronoun], HAVE, (time,)))
    condition = s.pick(CONDITIONS)
    if s.chance(0.5):
        return link_clauses(main, "if", condition)
    english_if, german_if = lexicon.CONJUNCTIONS["if"]
    return SentencePair(
        (*english_if, *english(condition), COMMA, *english(main)),
        (*german_if, *german(condition, last=True), COMMA, *german(main, front="")),
    )


def request(s: Speaker) -> SentencePair:
    if s.chance(0.4):
        return waiter_order(order_item(s), order_item(s)) if s.chance(0.85) else waiter_order(order_item(s))
    please = adverb("please", lexicon.PLEASE)
    if s.chance(0.1):
        object_ = object_slot(order_item(s), HAVE.complements[0])
        clause = Clause(PRONOUNS["I"], HAVE, (object_, please), modal=MODALS["can"])
        return SentencePair(english(clause, "", inverted=True), german(clause, ""), "?")
    s.used.add("you")
    clause = s.clause("request", subject=lexicon.FORMAL, verb=s.pick(VERB_GROUPS["please"]), mode="polite")
    clause = clause._replace(slots=(*clause.slots, please))
    if s.chance(0.4):
        return SentencePair(english(clause, "please"), german(clause, "please"))
    clause = clause._replace(tense="now", modal=MODALS["could"])
    return SentencePair(english(clause, "", inverted=True), german(clause, ""), "?")


def order_item(s: Speaker) -> NounPhrase:
    """A dish or a drink to order."""
    noun = s.noun(s.pick(("snacks", "food", "drinks", "drinks")))
    determiner = DETERMINERS[s.pick(("a", "a", "two", "three", "four"))]
    plural = determiner.tag == "NUM"
    adjective = s.adjective_for(noun.group) if s.chance(0.2) else None
    if noun.group == "snacks":
        return NounPhrase(noun, determiner, adjective, plural)
    if noun.group == "drinks" and s.chance(0.4):
        return s.portion(noun)._replace(determiner=determiner, plural=plural)
    return NounPhrase(noun, DETERMINERS["-"], adjective)


def waiter_order(*items: NounPhrase) -> SentencePair:
    """An order in a restaurant: "Tea and water please"."""
    english, german = items[0].english("acc"), items[0].german("acc")
    for phrase in items[1:]:
        english = (*english, ("and", "CCONJ"), *phrase.english("acc"))
        german = (*german, ("und", "CCONJ"), *phrase.german("acc"))
    return SentencePair(english + lexicon.PLEASE[0], german + lexicon.PLEASE[1], "")


SENTENCE_KINDS: dict[str, tuple[Callable[[Speaker], SentencePair], int]] = {  # with percentages
    "statement": (clauses.statement, 21),
    "question": (clauses.question, 14),
    "negation": (clauses.negation, 13),
    "modal": (clauses.modal, 12),
    "past": (clauses.past, 12),
    "subordinate": (subordinate, 13),
    "request": (request, 8),
    "description": (clauses.description, 7),
}
TEA_AND_WATER = waiter_order(NounPhrase(NOUNS["drinks"][0]), NounPhrase(NOUNS["drinks"][2]))

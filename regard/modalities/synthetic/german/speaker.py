"""Draws random clauses that make sense."""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from regard.modalities.synthetic.german import grammar, lexicon
from regard.modalities.synthetic.german.grammar import Clause, Nominal, NounPhrase, Slot, adverb, object_slot
from regard.modalities.synthetic.german.lexicon import ADJECTIVES, DETERMINERS, NOUNS, PRONOUNS
from regard.modalities.synthetic.german.verbs import HAVE, VERBS
from regard.modalities.synthetic.german.word_forms import Adjective, Complement, Determiner, Modal, Noun, Verb

T = TypeVar("T")
CONTENTS = {"cup": "tea coffee milk", "glass": "water milk juice wine beer lemonade", "bottle": "water juice wine beer"}
GROUP_ADJECTIVES = {g: [ADJECTIVES[name] for name in names.split()] for g, names in lexicon.GROUP_ADJECTIVES.items()}
VERB_GROUPS = {
    "state": tuple(verb for verb in VERBS if verb.traits >= {"simple", "present"}) + (HAVE,),
    "now": tuple(verb for verb in VERBS if "simple" not in verb.traits),
    "any": tuple(verb for verb in VERBS if "present" not in verb.traits),
    "past": tuple(verb for verb in VERBS if "present" not in verb.traits) + (HAVE,),
    "willed": tuple(verb for verb in VERBS if not verb.traits & {"present", "unwilled"}),
    "acts": tuple(verb for verb in VERBS if not verb.traits & {"present", "unwilled", "simple"}),
    "going": tuple(verb for verb in VERBS if any(complement.role == "goal" for complement in verb.complements)),
    "please": tuple(verb for verb in VERBS if "please" in verb.traits),
}


@cache
def determiners(group: str, plural: bool, mode: str) -> tuple[Determiner, ...]:
    """The determiners that fit a group of nouns and the mode of the slot."""
    table = lexicon.PLURAL if plural else lexicon.SINGULAR
    candidates = [DETERMINERS[name] for name in table.get(group, table["any"]).split()]
    if mode == "polite":
        candidates = [lexicon.POLITE if word.german == "dein" else word for word in candidates]
    accepts = {
        "any": lambda word: True,
        "definite": lambda word: word.definite,
        "indefinite": lambda word: not word.definite,
        "general": lambda word: word.definite or not word.german,  # "does not drink milk"
        "deniable": lambda word: word.definite or word.german in ("", "ein"),  # numbers do not go with "kein"
        "polite": lambda word: word.definite or word.german == "ein" or not (word.german or plural),
    }[mode]
    return tuple(filter(accepts, candidates))


class Speaker:
    def __init__(self, rng: random.Random):
        self.rng = rng
        self.used: set[str] = set()  # nouns, names and pronouns of the sentence; none occurs twice

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.random() * len(items))]

    def adjective_for(self, group: str) -> Adjective:
        """A random adjective that fits a group of nouns."""
        return self.pick(GROUP_ADJECTIVES[group])

    def noun(self, name: str) -> Noun:
        group = NOUNS[name]
        noun = self.pick(group)
        if noun.german in self.used:
            noun = self.pick([candidate for candidate in group if candidate.german not in self.used] or group)
        self.used.add(noun.german)
        return noun

    def noun_phrase(self, groups: Sequence[str], mode: str = "any", adjectives: float = 0.3) -> NounPhrase:
        group = self.pick(groups)
        if group == "portions":
            return self.portion(self.noun("drinks"))
        noun = self.noun(group)
        plural = bool(noun.german_plural) and self.chance(0.25)
        adjective = self.adjective_for(group) if self.chance(adjectives) else None
        return NounPhrase(noun, self.pick(determiners(group, plural, mode)), adjective, plural)

    def definite_phrase(self, group: str) -> NounPhrase:
        """A singular noun phrase with its definite article."""
        noun = self.noun(group)
        return NounPhrase(noun, DETERMINERS["the"], self.adjective_for(group) if self.chance(0.15) else None)

    def portion(self, drink: Noun) -> NounPhrase:
        """As in "a cup of tea"."""
        dish = self.pick([dish for dish in NOUNS["dishes"] if drink.english in CONTENTS[dish.english].split()])
        return NounPhrase(dish, DETERMINERS["a"], content=drink)

    def nominal(self, groups: Sequence[str], mode: str = "any") -> Nominal:
        """A noun phrase; for persons also a pronoun or a name."""
        if "family" not in groups or mode == "indefinite":
            return self.noun_phrase(groups, mode)
        kind = self.rng.random()
        if kind < 0.25:
            word = self.pick([word for word in PRONOUNS if word not in self.used])
            self.used.update(("I", "we") if word in ("I", "we") else (word,))
            return PRONOUNS[word]
        if kind < 0.37:
            name = self.pick([name for name in lexicon.NAMES if name not in self.used])
            self.used.add(name)
            return lexicon.NAMES[name]
        return self.noun_phrase(groups, mode)

    def place_slot(self, groups: Sequence[str], is_goal: bool) -> Slot:
        role, group = "goal" if is_goal else "place", self.pick(groups)
        if group in lexicon.FIXED_PLACES:
            return adverb(role, lexicon.FIXED_PLACES[group][is_goal])
        if group == "towns":
            english, german = self.pick(lexicon.TOWNS)
            to, nach = ("to", "nach") if is_goal else ("in", "in")
            return Slot(role, ((to, "ADP"), *english), ((nach, "ADP"), *german))
        place = self.definite_phrase(group)
        english_at, german_at, german_to, case = lexicon.PREPOSITIONS[group]
        preposition, case = (german_to, case) if is_goal else (german_at, "dat")
        words = grammar.prepositional_phrase(preposition, place.german(case))
        return Slot(role, (("to" if is_goal else english_at, "ADP"), *place.english("dat")), words)

    def furniture_slot(self, is_goal: bool) -> Slot:
        """On, under, behind … a piece of furniture: dative for a place, accusative for a goal."""
        (english, german), place = self.pick(lexicon.SPOTS), self.definite_phrase("furniture")
        words = german + place.german("acc" if is_goal else "dat")
        return Slot("goal" if is_goal else "place", english + place.english("acc"), words)

    def slot(self, complement: Complement, mode: str = "any", negated: bool = False) -> Slot:
        role, groups = complement.role, complement.groups
        if role in ("place", "goal"):
            return self.place_slot(groups, role == "goal")
        if role in ("spot", "onto"):
            return self.furniture_slot(role == "onto")
        if role == "vehicle":
            return adverb("manner", self.pick(lexicon.VEHICLES))
        if role == "manner":
            return adverb("manner", lexicon.MANNERS[self.pick(groups)])
        if negated and (role != "accusative" or "family" in groups):  # not "Er hilft nicht einem Mann"
            mode = "definite"
        return object_slot(self.nominal(groups, mode), complement, negated)

    def time(self, tense: str, probability: float) -> tuple[Slot, ...]:
        if not probability:
            return ()
        if tense == "perfect":
            return (adverb("often", lexicon.ALREADY, "late"),)
        if tense == "habit" and self.chance(0.5):
            return (adverb("often", self.pick(lexicon.OFTEN)),)
        if tense in ("habit", "future") or (tense in ("now", "past") and self.chance(probability)):
            return (adverb("time", self.pick(lexicon.TIMES[tense])),)
        return ()

    def clause(
        self,
        tense: str,
        *,
        subject: Nominal | None = None,
        verb: Verb | None = None,
        modal: Modal | None = None,
        negated: bool = False,
        definite: bool = False,
        mode: str = "any",
        time: float = 0.4,
    ) -> Clause:
        """A clause whose tense is now, habit, state, future, past, perfect or request; `definite` is its subject."""
        verb = verb or self.pick(VERB_GROUPS["willed" if modal else tense if tense in VERB_GROUPS else "any"])
        subject = subject or self.nominal(verb.subjects, "definite" if definite or negated else "any")
        slots = [
            self.slot(complement, mode, negated)
            for complement in verb.complements
            if not complement.optional or self.chance(0.4)
        ]
        if negated and len(slots) > 1:  # the scope of "nicht" would be ambiguous
            slots = [slot for slot in slots if slot.role != "place"]
        if modal and tense == "now":
            slots += self.time(self.pick(("now", "future")), 0.4) if self.chance(time) else ()
        else:
            slots += self.time(tense, time)
        return Clause(subject, verb, tuple(slots), "habit" if tense == "state" else tense, modal, negated)

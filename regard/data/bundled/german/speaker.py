"""A speaker: draws at random what makes sense to say, as clauses that the grammar can put into words."""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from regard.data.bundled.german import lexicon
from regard.data.bundled.german.grammar import Clause, Nominal, NounPhrase, Slot, adverb, after, object_slot
from regard.data.bundled.german.lexicon import ADJECTIVES, DETERMINERS, NOUNS, PRONOUNS, VERBS
from regard.data.bundled.german.words import Adjective, Complement, Determiner, Modal, Noun, Verb, tagged

T = TypeVar("T")
CONTENTS = {"cup": "tea coffee milk", "glass": "water milk juice wine beer lemonade", "bottle": "water juice wine beer"}
VERBS_OF = {
    "state": tuple(verb for verb in VERBS if verb.traits >= {"simple", "present"}) + (lexicon.HAVE,),
    "now": tuple(verb for verb in VERBS if "simple" not in verb.traits),
    "any": tuple(verb for verb in VERBS if "present" not in verb.traits),
    "past": tuple(verb for verb in VERBS if "present" not in verb.traits) + (lexicon.HAVE,),
    "willed": tuple(verb for verb in VERBS if not verb.traits & {"present", "unwilled"}),
    "please": tuple(verb for verb in VERBS if "please" in verb.traits),
}


@cache
def determiners(group: str, plural: bool, mode: str) -> tuple[Determiner, ...]:
    """Those that fit a group of nouns, as the place in the sentence wants them."""
    table = lexicon.PLURAL if plural else lexicon.SINGULAR
    fitting = [DETERMINERS[name] for name in table.get(group, table["any"]).split()]
    if mode == "polite":
        fitting = [lexicon.POLITE if word.german == "dein" else word for word in fitting]
    keep = {
        "any": lambda word: True,
        "definite": lambda word: word.definite,
        "indefinite": lambda word: not word.definite,
        "general": lambda word: word.definite or not word.german,  # "does not drink milk"
        "deniable": lambda word: word.definite or word.german in ("", "ein"),  # "kein" and "nicht" dislike numbers
        "polite": lambda word: word.definite or word.german == "ein" or not (word.german or plural),
    }[mode]
    return tuple(filter(keep, fitting))


@cache
def looks(group: str) -> tuple[Adjective, ...]:
    return tuple(ADJECTIVES[name] for name in lexicon.LOOKS[group].split())


class Speaker:
    def __init__(self, rng: random.Random):
        self.rng = rng
        self.used: set[object] = set()  # nouns, names and pronouns of the sentence, which are not said twice

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, things: Sequence[T]) -> T:
        return things[int(self.rng.random() * len(things))]

    def look(self, group: str) -> Adjective:
        """An adjective that fits a group of nouns."""
        return self.pick(looks(group))

    def noun(self, groups: Sequence[str]) -> Noun:
        while (noun := self.pick(NOUNS[self.pick(groups)])) in self.used:
            pass
        self.used.add(noun)
        return noun

    def noun_phrase(self, groups: Sequence[str], mode: str = "any", adjectives: float = 0.3) -> NounPhrase:
        noun = self.noun(groups)
        plural = bool(noun.german_plural) and self.chance(0.25)
        adjective = self.look(noun.group) if self.chance(adjectives) else None
        determiner = self.pick(determiners(noun.group, plural, mode))
        if noun.group == "drinks" and not determiner.definite and self.chance(0.3):
            return self.portion(noun)
        return NounPhrase(noun, determiner, adjective, plural)

    def portion(self, drink: Noun) -> NounPhrase:
        dish = self.pick([dish for dish in NOUNS["dishes"] if drink.english in CONTENTS[dish.english].split()])
        return NounPhrase(dish, DETERMINERS["a"], content=drink)

    def nominal(self, groups: Sequence[str], mode: str = "any", pronouns: float = 0.25) -> Nominal:
        """A noun phrase, or where it is a person perhaps a pronoun or a name."""
        if "family" not in groups or mode == "indefinite":
            return self.noun_phrase(groups, mode)
        kind = self.rng.random()
        if kind < pronouns:
            free = [word for word in PRONOUNS.values() if word.pronoun not in self.used]
            word = self.pick(free)
            self.used |= {"I", "we"} if word.pronoun in ("I", "we") else {word.pronoun}
            return word
        if kind < pronouns + 0.12:
            name = self.pick([name for name in lexicon.NAMES if name not in self.used])
            self.used.add(name)
            return lexicon.NAMES[name]
        return self.noun_phrase(groups, mode)

    def whereabouts(self, groups: Sequence[str], going: bool) -> Slot:
        role, group = "goal" if going else "place", self.pick(groups)
        if group in lexicon.FIXED_PLACES:
            return adverb(role, lexicon.FIXED_PLACES[group][going])
        if group == "towns":
            english, german = self.pick(lexicon.TOWNS)
            return Slot(
                role,
                tagged("to/ADP" if going else "in/ADP") + english,
                tagged("nach/ADP" if going else "in/ADP") + german,
            )
        adjective = self.look(group) if self.chance(0.15) else None
        place = NounPhrase(self.noun([group]), DETERMINERS["the"], adjective)
        english_at, german_at, german_to, case = lexicon.PREPOSITIONS[group]
        words = after(german_to, place.german(case)) if going else after(german_at, place.german("dat"))
        return Slot(role, (("to" if going else english_at, "ADP"), *place.english("dat")), words)

    def spot(self, going: bool) -> Slot:
        """On, under, behind … a piece of furniture: dative where something is, accusative where it goes."""
        (english, german), place = self.pick(lexicon.SPOTS), self.noun_phrase(["furniture"], "definite", 0.15)
        place = place._replace(determiner=DETERMINERS["the"], plural=False)
        words = german + place.german("acc" if going else "dat")
        return Slot("goal" if going else "place", english + place.english("acc"), words)

    def slot(self, complement: Complement, mode: str = "any", negated: bool = False) -> Slot:
        role, groups = complement.role, complement.groups
        if role in ("place", "goal"):
            return self.whereabouts(groups, role == "goal")
        if role in ("spot", "onto"):
            return self.spot(role == "onto")
        if role == "vehicle":
            return adverb("manner", self.pick(lexicon.VEHICLES))
        if role == "manner":
            return adverb("manner", lexicon.MANNERS[self.pick(groups)])
        if negated and (role != "accusative" or "family" in groups):  # not "Er hilft nicht einem Mann"
            mode = "definite"
        return object_slot(self.nominal(groups, mode), complement, negated)

    def time(self, tense: str, share: float) -> tuple[Slot, ...]:
        if not share:
            return ()
        if tense == "perfect":
            return (adverb("often", lexicon.ALREADY, "late"),)
        if tense == "habit" and self.chance(0.5):
            return (adverb("often", self.pick(lexicon.OFTEN)),)
        if tense in ("habit", "future") or (tense in ("now", "past") and self.chance(share)):
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
        verb = verb or self.pick(VERBS_OF["willed" if modal else tense if tense in VERBS_OF else "any"])
        subject = subject or self.nominal(verb.subjects, "definite" if definite or negated else "any")
        slots = [
            self.slot(complement, mode, negated)
            for complement in verb.complements
            if not complement.optional or self.chance(0.4)
        ]
        if negated and len(slots) > 1:  # "nicht" would have to choose between them
            slots = [slot for slot in slots if slot.role != "place"]
        if modal and tense == "now":
            slots += self.time(self.pick(("now", "future")), 0.4) if self.chance(time) else ()
        else:
            slots += self.time(tense, time)
        return Clause(subject, verb, tuple(slots), "habit" if tense == "state" else tense, modal, negated)

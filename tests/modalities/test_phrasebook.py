"""The phrasebook's German follows the rules of grammar, checked with independent tables."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice, pairwise, repeat
from random import Random

import pytest

from regard.modalities.synthetic.german import lexicon, verbs
from regard.modalities.synthetic.german.clauses import SentencePair, ask, predicate
from regard.modalities.synthetic.german.grammar import (
    Clause,
    NounPhrase,
    Slot,
    adverb,
    english,
    german,
    object_slot,
    prepositional_phrase,
)
from regard.modalities.synthetic.german.sentence_kinds import link_clauses, waiter_order
from regard.modalities.synthetic.phrasebook import (
    KINDS,
    Phrase,
    collect_distinct,
    draw_phrases,
    join_words,
    make_phrase,
    phrases,
    split,
)

UNIVERSAL = {"NOUN", "VERB", "DET", "ADJ", "PRON", "ADP", "ADV", "AUX", "CCONJ", "SCONJ", "PART", "PUNCT", "PROPN"}
UNIVERSAL |= {"NUM", "INTJ"}
NOUNS = {noun.english: noun for noun in chain(*lexicon.NOUNS.values())}
VERBS = {(verb.english[3], verb.infinitive): verb for verb in (*verbs.VERBS, verbs.HAVE)}


@pytest.fixture(scope="module")
def book() -> list[Phrase]:
    return phrases()


def german_words(p: Phrase) -> list[str]:
    return [word for word, _ in p.german_tags]


def test_60_000_english_sentences_are_all_different(book: list[Phrase]) -> None:
    assert len({p.english for p in book}) == len(book) == 60_000


def test_an_english_sentence_has_one_translation_and_one_kind() -> None:
    translations: dict[str, Phrase] = {}
    for phrase in islice(draw_phrases(Random(7)), 20_000):
        assert translations.setdefault(phrase.english, phrase) == phrase
    assert len(translations) < 20_000, "nothing was drawn twice, so nothing was tested"


def test_every_kind_is_well_represented(book: list[Phrase]) -> None:
    counts = Counter(p.kind for p in book)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 0.05 * len(book)


def test_sentences_have_2_to_14_words(book: list[Phrase]) -> None:
    for p in book:
        for tags in (p.english_tags, p.german_tags):
            assert 2 <= len(tags) - (tags[-1][1] == "PUNCT") <= 14


def test_tags_rejoin_to_the_sentence_and_are_universal(book: list[Phrase]) -> None:
    for p in book:
        assert join_words(p.english_tags) == p.english
        assert join_words(p.german_tags) == p.german
    assert (
        {tag for p in book for _, tag in p.english_tags} == {tag for p in book for _, tag in p.german_tags} == UNIVERSAL
    )


def test_short_lists_are_prefixes_and_seeds_differ(book: list[Phrase]) -> None:
    assert phrases(500) == book[:500]
    assert phrases(500, seed=1) != book[:500]


def test_the_phrases_do_not_depend_on_the_hash_seed() -> None:
    program = "from regard.modalities.synthetic.phrasebook import phrases; print(phrases(1000, seed=3))"
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second


@pytest.mark.parametrize(("count", "seed"), [(100, 0), (100, 5), (3000, 1)])
def test_tea_and_water_is_always_in_training(count: int, seed: int) -> None:
    (tea,) = [p for p in phrases(count, seed) if p.english == "Tea and water please"]
    assert (tea.german, tea.kind, split(tea)) == ("Tee und Wasser bitte", "request", "train")


@pytest.mark.parametrize("count", [300, 5000, 60_000])
def test_held_out_examples_are_new_but_have_only_training_words(book: list[Phrase], count: int) -> None:
    train = [p for p in book[:count] if split(p) == "train"]
    held_out = [p for p in book[:count] if split(p) != "train"]
    assert {p.english for p in train}.isdisjoint(p.english for p in held_out)
    assert {word for p in held_out for word, _ in p.english_tags} <= {word for p in train for word, _ in p.english_tags}
    assert {word for p in held_out for word in german_words(p)} <= {word for p in train for word in german_words(p)}


def test_about_2_percent_of_every_kind_are_valid_and_2_percent_test(book: list[Phrase]) -> None:
    for part in ("valid", "test"):
        counts = Counter(p.kind for p in book if split(p) == part)
        assert 0.015 < counts.total() / len(book) < 0.025
        assert min(counts[kind] for kind in KINDS) > 30


def test_too_many_phrases_are_refused_with_both_counts() -> None:
    few = list(islice(draw_phrases(Random(0)), 50))
    with pytest.raises(ValueError, match=r"1,000 .* only \d+"):
        collect_distinct(few, 1000)
    with pytest.raises(ValueError, match="2 .* only 1"):
        collect_distinct(repeat(few[0]), 2)


# Agreement. A reading is a case with a gender or the plural; article, adjective and noun must have one in common.

DER = {"der": "nom-m dat-f", "die": "nom-f acc-f nom-p acc-p", "das": "nom-n acc-n", "den": "acc-m dat-p"}
DER |= {"dem": "dat-m dat-n"}
MELTED = {"im": DER["dem"], "am": DER["dem"], "zum": DER["dem"], "vom": DER["dem"], "zur": "dat-f"}
MELTED |= {"ins": "acc-n", "ans": "acc-n"}
DIESER = {"er": "nom-m dat-f", "e": "nom-f acc-f nom-p acc-p", "es": "nom-n acc-n", "en": "acc-m dat-p"}
DIESER |= {"em": "dat-m dat-n"}
EIN = {"": "nom-m nom-n acc-n", "e": "nom-f acc-f nom-p acc-p", "en": "acc-m dat-p", "em": "dat-m dat-n", "er": "dat-f"}
COUNTED = dict.fromkeys(("zwei", "drei", "vier", "fünf"), "nom-p acc-p dat-p")
WEAK = {"e": "nom-m nom-f nom-n acc-f acc-n", "en": "acc-m dat-m dat-f dat-n nom-p acc-p dat-p"}
MIXED = {"er": "nom-m", "es": "nom-n acc-n", "e": "nom-f acc-f", "en": WEAK["en"]}
STRONG = DIESER
DATIVE = ("mit", "von", "zu")


def determiner_readings() -> dict[str, tuple[str, dict[str, str]]]:
    """What a determiner may be, and how the adjectives behind it end."""
    table = {word: (readings, WEAK) for word, readings in (DER | MELTED).items()}
    table |= {"dies" + ending: (readings, WEAK) for ending, readings in DIESER.items()}
    for stem in ("ein", "kein", "mein", "dein", "sein", "ihr", "unser"):
        table |= {stem + ending: (readings, MIXED) for ending, readings in EIN.items()}
    table |= {word: (readings, STRONG) for word, readings in COUNTED.items()}
    return table | {"viele": ("nom-p acc-p", STRONG), "vielen": ("dat-p", STRONG)}


def noun_readings() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        table.setdefault(noun.german, set()).add(f"nom-{noun.gender}")
        table.setdefault(noun.oblique, set()).update({f"acc-{noun.gender}", f"dat-{noun.gender}"})
        if plural := noun.german_plural:
            table.setdefault(plural, set()).update({"nom-p", "acc-p"})
            table.setdefault(plural if plural[-1] in "ns" else plural + "n", set()).add("dat-p")
    return table


def adjective_endings() -> dict[str, str]:
    return {word.stem + end: end for word in lexicon.ADJECTIVES.values() for end in ("e", "er", "es", "en", "em")}


def test_articles_adjectives_and_nouns_agree(book: list[Phrase]) -> None:
    determiners, nouns, endings = determiner_readings(), noun_readings(), adjective_endings()
    checked: Counter[str] = Counter()
    for p in book[::2]:
        for i, (noun, tag) in enumerate(p.german_tags):
            if tag != "NOUN" or noun not in nouns:
                continue
            words = [(word.lower(), tag) for word, tag in p.german_tags[:i]]
            adjective = words.pop()[0] if words and words[-1][0] in endings and words[-1][1] == "ADJ" else ""
            determiner = words.pop()[0] if words and words[-1][0] in determiners and words[-1][1] != "PRON" else ""
            readings, pattern = determiners.get(determiner, ("", STRONG))
            common = nouns[noun] & set(readings.split()) if determiner else nouns[noun]
            if adjective:
                common = common & set(pattern[endings[adjective]].split())
            if words and words[-1][0] in DATIVE:
                common = {reading for reading in common if reading.startswith("dat")}
            if not words and determiner not in MELTED:
                common = {reading for reading in common if reading.startswith("acc" if p.kind == "request" else "nom")}
            assert common, f"{noun} in {p.german}"
            checked[f"{bool(determiner)} {bool(adjective)}"] += 1
    assert len(checked) == 4
    assert min(checked.values()) > 200


FINITE = {form for verb in (*verbs.VERBS, *verbs.SAYING_VERBS) for form in verb.german}
FINITE |= {verb.prefix + form for verb in verbs.VERBS for form in verb.german} | {"regnet", "schneit", "scheint"}
FINITE |= {form for modal in verbs.MODALS.values() for form in modal.german} | {"hoffe", "hoffst", "hofft", "hoffen"}
FINITE |= {"habe", "hast", "hat", "haben", "hatte", "hattest", "hatten"}
FINITE |= {"bin", "bist", "ist", "sind", "war", "warst", "waren"}


def test_a_subordinate_clause_ends_with_its_finite_verb_and_has_its_comma(book: list[Phrase]) -> None:
    for p in book:
        words = german_words(p)
        assert words.count(",") == (p.kind == "subordinate")
        if p.kind == "subordinate" and words[0] == "Wenn":
            comma = words.index(",")
            assert {words[comma - 1], words[comma + 1]} <= FINITE, p.german
        elif p.kind == "subordinate":
            assert words[words.index(",") + 1] in ("weil", "dass", "wenn", "ob", "obwohl")
            assert words[-2] in FINITE, p.german


def test_the_verb_is_second_after_an_initial_time(book: list[Phrase]) -> None:
    times = {join_words(german).lower() for _, german in chain(*lexicon.TIMES.values())}
    fronted = 0
    for p in book:
        words = german_words(p)
        for length in (2, 1):
            if " ".join(words[:length]).lower() in times:
                assert words[length] in FINITE, p.german
                fronted += 1
                break
    assert fronted > 2000


def test_english_articles_fit_the_sound_that_follows(book: list[Phrase]) -> None:
    for p in book:
        for (word, _), (following, _) in pairwise(p.english_tags):
            if word in ("a", "an", "A", "An"):
                assert (word in ("an", "An")) == (following[0] in "aeiou"), p.english


# Sentences by hand, for each thing that German does in its own way.


def noun_phrase(text: str) -> NounPhrase:
    """From "the old men"; "-" is no determiner."""
    first, *adjectives, name = text.split()
    plural = name not in NOUNS
    noun = next(noun for noun in NOUNS.values() if name in (noun.english, noun.english_plural))
    adjective = lexicon.ADJECTIVES[adjectives[0]] if adjectives else None
    return NounPhrase(noun, lexicon.DETERMINERS[first], adjective, plural)


def clause(
    subject: str,
    verb: tuple[str, str],
    *objects: str,
    tense: str = "now",
    modal: str = "",
    negated: bool = False,
    slots: Iterable[Slot] = (),
) -> Clause:
    """A clause of the words named; objects fill the complements of the verb in their order."""
    who = lexicon.PRONOUNS.get(subject) or lexicon.NAMES.get(subject) or noun_phrase(subject)
    word = VERBS[verb]
    filled = [
        object_slot(lexicon.PRONOUNS.get(text) or noun_phrase(text), complement, negated)
        for text, complement in zip(objects, word.complements, strict=False)
    ]
    return Clause(who, word, (*filled, *slots), tense, verbs.MODALS.get(modal), negated)


def time(english: str) -> Slot:
    pairs = (*chain(*lexicon.TIMES.values()), *lexicon.OFTEN)
    (pair,) = [pair for pair in pairs if " ".join(word for word, _ in pair[0]) == english]
    return adverb("often" if pair in lexicon.OFTEN else "time", pair)


def where(role: str, prepositions: str, text: str) -> Slot:
    """A place, from both prepositions and the case: "at/an dat"."""
    (english, _, german), case = prepositions.split()[0].partition("/"), prepositions.split()[1]
    place = noun_phrase(text)
    return Slot(role, ((english, "ADP"), *place.english(case)), prepositional_phrase(german, place.german(case)))


def plain(clause: Clause, front: str = "subject") -> SentencePair:
    return SentencePair(english(clause, front), german(clause, front))


def request(verb: tuple[str, str], *objects: str, please_first: bool = False) -> SentencePair:
    sentence = clause("you", verb, *objects)._replace(subject=lexicon.FORMAL)
    sentence = sentence._replace(slots=(*sentence.slots, adverb("please", lexicon.PLEASE)))
    if please_first:
        return plain(sentence._replace(tense="request"), "please")
    sentence = sentence._replace(modal=verbs.MODALS["could"])
    return SentencePair(english(sentence, "", inverted=True), german(sentence, ""), "?")


CALL, PICK_UP, BUY = ("call", "anrufen"), ("pick", "abholen"), ("buy", "kaufen")
TOO_DEAR = predicate(lexicon.ADJECTIVES["expensive"], "too")
TIRED = predicate(lexicon.ADJECTIVES["tired"])
GOLDEN = [
    (
        waiter_order(NounPhrase(NOUNS["tea"]), NounPhrase(NOUNS["water"])),
        "Tea and water please",
        "Tee und Wasser bitte",
    ),
    (
        waiter_order(noun_phrase("- cold juice"), noun_phrase("a cake")),
        "Cold juice and a cake please",
        "Kalten Saft und einen Kuchen bitte",
    ),
    (
        request(("open", "öffnen"), "the window"),
        "Could you open the window please?",
        "Könnten Sie bitte das Fenster öffnen?",
    ),
    (request(PICK_UP, "I"), "Could you pick me up please?", "Könnten Sie mich bitte abholen?"),
    (
        request(("turn", "einschalten"), "the lamp", please_first=True),
        "Please turn on the lamp.",
        "Bitte schalten Sie die Lampe ein.",
    ),
    (
        plain(clause("the man", CALL, "his sister", slots=[time("today")]), "time"),
        "Today the man is calling his sister.",
        "Heute ruft der Mann seine Schwester an.",
    ),
    (
        plain(clause("my uncle", ("ask", "fragen"), "we", tense="future", slots=[time("on Monday")]), "time"),
        "On Monday my uncle will ask us.",
        "Am Montag fragt uns mein Onkel.",
    ),
    (
        plain(clause("my uncle", ("ask", "fragen"), "she", tense="future", slots=[time("on Monday")]), "time"),
        "On Monday my uncle will ask her.",
        "Am Montag fragt mein Onkel sie.",
    ),
    (
        plain(clause("the children", ("help", "helfen"), "two old men", tense="habit", slots=[time("often")])),
        "The children often help two old men.",
        "Die Kinder helfen oft zwei alten Männern.",
    ),
    (
        plain(clause("Anna", ("give", "geben"), "the boy", "a small ball", tense="future", slots=[time("tomorrow")])),
        "Anna will give the boy a small ball tomorrow.",
        "Anna gibt morgen dem Jungen einen kleinen Ball.",
    ),
    (
        plain(clause("we", ("wait", "warten"), "our neighbour", slots=[where("place", "at/an dat", "the station")])),
        "We are waiting for our neighbour at the station.",
        "Wir warten am Bahnhof auf unseren Nachbarn.",
    ),
    (
        plain(clause("you", ("go", "fahren"), tense="past",
                     slots=[where("goal", "to/zu dat", "the bridge"), adverb("manner", lexicon.VEHICLES[0])])),
        "You went to the bridge by bus.",
        "Du bist mit dem Bus zur Brücke gefahren.",
    ),
    (
        plain(clause("she", ("put", "legen"), "the book", slots=[where("goal", "on/auf acc", "the table")])),
        "She is putting the book on the table.",
        "Sie legt das Buch auf den Tisch.",
    ),
    (
        plain(clause("the book", ("lie", "liegen"), slots=[where("place", "on/auf dat", "the table")])),
        "The book is lying on the table.",
        "Das Buch liegt auf dem Tisch.",
    ),
    (
        plain(clause("she", BUY, "a red coat", negated=True, slots=[time("today")])),
        "She is not buying a red coat today.",
        "Sie kauft heute keinen roten Mantel.",
    ),
    (
        plain(clause("the doctor", CALL, "his mother", tense="past", negated=True, slots=[time("yesterday")])),
        "The doctor didn't call his mother yesterday.",
        "Der Arzt hat seine Mutter gestern nicht angerufen.",
    ),
    (
        plain(clause("you", ("open", "öffnen"), "the box", modal="must not", negated=True)),
        "You must not open the box.",
        "Du darfst die Kiste nicht öffnen.",
    ),
    (
        plain(clause("he", ("go", "gehen"), modal="have to", negated=True,
                     slots=[adverb("goal", lexicon.FIXED_PLACES["school"][1])])),
        "He doesn't have to go to school.",
        "Er muss nicht in die Schule gehen.",
    ),
    (
        link_clauses(clause("the farmer", BUY, "the coat", negated=True), "because",
               Clause(lexicon.IT["m"], verbs.BE, (TOO_DEAR,))),
        "The farmer is not buying the coat because it is too expensive.",
        "Der Bauer kauft den Mantel nicht, weil er zu teuer ist.",
    ),
    (
        link_clauses(
            Clause(lexicon.PRONOUNS["I"], verbs.KNOW), "that", clause("your guest", CALL, "I", modal="want to")
        ),
        "I know that your guest wants to call me.",
        "Ich weiß, dass dein Gast mich anrufen will.",
    ),
    (
        link_clauses(Clause(lexicon.PRONOUNS["we"], verbs.HOPE), "that", clause("the uncle", CALL, "his old friends")),
        "We hope that the uncle is calling his old friends.",
        "Wir hoffen, dass der Onkel seine alten Freunde anruft.",
    ),
    (ask(clause("you", ("eat", "essen"), "- cheese", tense="habit")), "Do you eat cheese?", "Isst du Käse?"),
    (
        ask(clause("the student", ("help", "helfen"), "the girl"), "object"),
        "Who is the student helping?",
        "Wem hilft der Student?",
    ),
    (
        ask(clause("your aunt", ("wait", "warten"), "the bus", tense="past"), "object"),
        "Who did your aunt wait for?",
        "Auf wen hat deine Tante gewartet?",
    ),
    (
        ask(Clause(lexicon.NAMES["Emma"], verbs.BE, (TIRED,), "past"), "reason"),
        "Why was Emma tired?",
        "Warum war Emma müde?",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "english", "german"), GOLDEN, ids=[english for _, english, _ in GOLDEN])
def test_translations_by_hand(pair: SentencePair, english: str, german: str) -> None:
    generated = make_phrase("any", pair)
    assert (generated.english, generated.german) == (english, german)
